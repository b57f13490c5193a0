//! A counter shared by processes: `counter FOLDER TIMES` adds to it so often, and says what it came to.

use std::path::Path;

use sapwood_xact::{Error, Memory, Mode, Options, Ptr, Space};

/// Adds 1 so often to the counter in a folder; gives what it came to.
pub(crate) fn count(folder: &Path, times: u64) -> Result<u64, Error> {
    let options = Options::new().mode(Mode::Explicit).bytes(1 << 24);
    let space = Space::open(folder, &options)?;
    let mut value = 0;
    for _ in 0..times {
        // Runs again if another process was faster.
        value = space.transaction(|t| {
            let mut counter: Ptr<u64> = Ptr::new(t.root()?);
            if counter.is_none() {
                counter = t.place(&0)?;
                t.set_root(counter.get())?;
            }
            let value = t.load(counter)? + 1;
            t.store(counter, &value)?;
            Ok::<_, Error>(value)
        })?;
    }
    Ok(value)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: counter FOLDER TIMES")?;
    let times = arguments.next().map_or(Ok(1), |times| times.parse())?;
    println!("{}", count(Path::new(&folder), times)?);
    Ok(())
}
