//! A list of tasks that survives power cuts: `todo FOLDER`, `todo FOLDER add TEXT`, `todo FOLDER done NUMBER`.

use sapwood_store::{Env, Options, Result, TypedTree, WriteTxn};

const TASKS: TypedTree<'_, u64, str> = TypedTree::new("tasks");
const DONE: TypedTree<'_, u64, str> = TypedTree::new("done");

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [folder, ref command @ ..] = arguments[..] else {
        eprintln!("todo FOLDER [add TEXT | done NUMBER]");
        return Ok(());
    };
    let env = Env::open(folder, &Options::new())?;
    match *command {
        ["add", text] => {
            let mut txn = env.write()?;
            let number = add(&mut txn, text)?;
            txn.commit()?.wait_durable()?;
            println!("{number}");
        }
        ["done", number] => {
            let mut txn = env.write()?;
            let is_known = finish(&mut txn, number.parse().unwrap_or_default())?;
            txn.commit()?.wait_durable()?;
            println!(
                "{}",
                if is_known {
                    "done"
                } else {
                    "there is no such task"
                }
            );
        }
        _ => {
            if let Some(tasks) = TASKS.read(&env.read()?)? {
                for task in tasks.range(0..)? {
                    let task = task?;
                    println!("{} {}", task.key(), task.value());
                }
            }
        }
    }
    Ok(())
}

fn add(txn: &mut WriteTxn, text: &str) -> Result<u64> {
    let tasks = TASKS.create(txn)?;
    let number = tasks.view(txn)?.last()?.map_or(1, |last| last.key() + 1);
    tasks.put(txn, number, text)?;
    Ok(number)
}

fn finish(txn: &mut WriteTxn, number: u64) -> Result<bool> {
    let (tasks, done) = (TASKS.create(txn)?, DONE.create(txn)?);
    let Some(text) = tasks.get(txn, number)?.map(str::to_owned) else {
        return Ok(false);
    };
    done.put(txn, number, &text)?;
    tasks.delete(txn, number)
}
