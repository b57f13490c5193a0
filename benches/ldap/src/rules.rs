//! What rules cost, in the server's processor time: groups of a thousand and of a hundred thousand members whose
//! entries know their groups, and whose members are renamed; values that no two entries have; a tree that is deleted.
//! slapd beside: with the overlays memberof and refint, which write memberOf down, with dynlist, which finds groups in
//! groups when it is asked, and with unique.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sapwood_client::{Client, Options as Connecting};
use sapwood_figures::publish;
use sapwood_ldap::controls::{Control, ControlsBuf};
use sapwood_ldap::message::Request;

use crate::load::Load;
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Index, Prepared, Product, Server, Setup, Shape};
use crate::{Folder, SUFFIX};

/// How many times as much an operation on the larger group may cost.
const RATIO_MAX: f64 = 1.5;

/// People who are in no group at first.
const OTHERS: u32 = 10_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Members of the smaller and of the larger group
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_values_t = [1000, 100_000]
    )]
    members: Vec<u32>,
    /// Entries of the tree that is deleted, 0 for none
    #[arg(long, value_name = "N", default_value_t = 250_000)]
    tree: u32,
    /// Seconds for each operation, group and server
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Only operations whose name contains this
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
    /// Only this server
    #[arg(long)]
    only: Option<Product>,
    /// The sapwood program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    sapwood: Option<PathBuf>,
    /// Where data goes: on the disk whose durability counts; a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
    /// Put the tables into performance.md of this folder
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
}

const INDEXES: &[Index] = &[("objectClass,uid,mail,member", "eq"), ("entryUUID", "eq")];

/// A product with what answers questions about groups.
struct Kind {
    name: &'static str,
    product: Product,
    setup: Setup,
    /// Whether entries come with the memberOf that the overlay would have written.
    writes_member_of: bool,
    /// Whether groups follow the names of their members.
    follows: bool,
    /// How it is asked for groups in groups, if it knows of them.
    nested: Option<Nested>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Nested {
    /// By the rule inchainMatch.
    InChain,
    /// Its memberOf has them.
    MemberOf,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "sapwood",
        product: Product::Sapwood,
        setup: Setup {
            rules: &[&["memberof"], &["refint", "--attributes", "member"]],
            modules: &[],
            overlays: "",
        },
        writes_member_of: false,
        follows: true,
        nested: Some(Nested::InChain),
    },
    Kind {
        name: "slapd, memberof and refint",
        product: Product::Slapd,
        setup: Setup {
            rules: &[],
            modules: &["memberof", "refint"],
            overlays: "overlay memberof\noverlay refint\nrefint_attributes member\n",
        },
        writes_member_of: true,
        follows: true,
        nested: None,
    },
    Kind {
        name: "slapd, dynlist",
        product: Product::Slapd,
        setup: Setup {
            rules: &[],
            modules: &["dynlist"],
            overlays: "overlay dynlist\ndynlist-attrset groupOfURLs memberURL member+memberOf@groupOfNames*\n",
        },
        writes_member_of: false,
        follows: false,
        nested: Some(Nested::MemberOf),
    },
];

/// What adds entries, without a rule and with unique.
const UNIQUE: [(&str, Setup); 2] = [
    (
        "without",
        Setup {
            rules: &[],
            modules: &[],
            overlays: "",
        },
    ),
    (
        "unique",
        Setup {
            rules: &[&["unique", "--attributes", "uid,mail"]],
            modules: &["unique"],
            overlays: "overlay unique\nunique_uri ldap:///?uid?sub?\nunique_uri ldap:///?mail?sub?\n",
        },
    ),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    let [fewer, more] = options.members[..] else {
        anyhow::bail!("two numbers of members");
    };
    ensure!(
        OTHERS / 100 < fewer && fewer < more && options.seconds > 0.0,
        "the smaller group comes first, and some time for each"
    );
    let folder = Folder::create(&options.folder)?;
    let mut text = format!(
        "| | | {fewer} members, µs CPU | {more} members, µs CPU | ratio | required | |\n\
         | --- | --- | ---: | ---: | ---: | ---: | --- |\n"
    );
    let mut missed = false;
    for (number, kind) in KINDS.iter().enumerate() {
        if options.only.is_some_and(|only| only != kind.product) {
            continue;
        }
        let parent = folder.path.join(format!("groups-{number}"));
        let server = serve(&parent, kind, options)?;
        for operation in operations(kind) {
            if (options.row.as_ref()).is_some_and(|row| !operation.name.contains(row.as_str())) {
                continue;
            }
            let cost = |members| {
                let cost = load(options).update_cpu_us(&operation.plan(members), &server);
                cost.with_context(|| format!("{}, {}, {members}", kind.name, operation.name))
            };
            let (few, many) = (cost(fewer)?, cost(more)?);
            let ratio = many / few;
            let (required, verdict) = match kind.product {
                Product::Slapd => (String::new(), ""),
                Product::Sapwood => {
                    missed |= ratio > RATIO_MAX;
                    let verdict = match ratio <= RATIO_MAX {
                        true => "met",
                        false => "**missed**",
                    };
                    (format!("≤ {RATIO_MAX}"), verdict)
                }
            };
            let line = format!(
                "| {} | {} | {few:.1} | {many:.1} | {ratio:.2} | {required} | {verdict} |\n",
                operation.name, kind.name
            );
            eprint!("{line}");
            text += &line;
        }
        server.stop()?;
        fs::remove_dir_all(&parent)?;
    }
    text += &unique(options, &folder)?;
    if options.tree > 0 && options.row.is_none() {
        text += &trees(options, &folder)?;
    }
    println!("{text}");
    if let Some(docs) = &options.docs {
        publish("rules", &docs.join("performance.md"), &text)?;
    }
    ensure!(
        !missed,
        "an operation on the larger group costs more than it may"
    );
    Ok(())
}

fn load(options: &Options) -> Load {
    let time = Duration::from_secs_f64(options.seconds);
    Load {
        shape: Shape::Flat,
        entries: 0,
        seed: 1,
        read_time: time,
        write_time: time,
        slapd_write_time: time,
    }
}

/// A server of groups.
fn serve(parent: &Path, kind: &Kind, options: &Options) -> Result<Server> {
    let ldif = parent.with_extension("ldif");
    write_groups(&ldif, &options.members, kind.writes_member_of)?;
    let server = prepare(parent, kind.product, &kind.setup, options)?;
    // What is there is looked at when rules are added, which is not what is measured.
    let server = server.import(&ldif)?.0.start()?;
    fs::remove_file(&ldif)?;
    Ok(server)
}

fn prepare(parent: &Path, product: Product, setup: &Setup, options: &Options) -> Result<Prepared> {
    fs::create_dir(parent)?;
    let sapwood = options.sapwood.as_deref();
    product
        .prepare_as(parent, &[], INDEXES, sapwood)?
        .with(setup)
}

fn write_head(out: &mut impl Write) -> Result<()> {
    Ok(write!(
        out,
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: Example\ndc: example\n\n\
         dn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people\n"
    )?)
}

fn write_person(out: &mut impl Write, uid: &str, more: &str) -> Result<()> {
    Ok(write!(
        out,
        "\ndn: uid={uid},ou=people,{SUFFIX}\nobjectClass: inetOrgPerson\nuid: {uid}\ncn: {uid}\nsn: {uid}\n\
         mail: {uid}@example.com\n{more}"
    )?)
}

/// Groups of so many members, each the only member of another group, and people who are in none.
fn write_groups(path: &Path, groups: &[u32], writes_member_of: bool) -> Result<()> {
    let mut out = BufWriter::new(fs::File::create(path)?);
    write_head(&mut out)?;
    for members in groups {
        let member_of = match writes_member_of {
            true => format!("memberOf: cn=group {members},{SUFFIX}\n"),
            false => String::new(),
        };
        for number in 1..=*members {
            write_person(&mut out, &format!("m{members}x{number:07}"), &member_of)?;
        }
        write!(
            out,
            "\ndn: cn=group {members},{SUFFIX}\nobjectClass: groupOfNames\ncn: group {members}\n"
        )?;
        for number in 1..=*members {
            writeln!(out, "member: uid=m{members}x{number:07},ou=people,{SUFFIX}")?;
        }
        write!(
            out,
            "\ndn: cn=around {members},{SUFFIX}\nobjectClass: groupOfNames\ncn: around {members}\n\
             member: cn=group {members},{SUFFIX}\n"
        )?;
    }
    for number in 1..=OTHERS {
        write_person(&mut out, &format!("other{number:07}"), "")?;
    }
    Ok(out.flush()?)
}

/// What is asked of a group: the steps of a plan, in which `{g}` is the number of its members.
struct Operation {
    name: &'static str,
    steps: String,
}

impl Operation {
    fn plan(&self, members: u32) -> String {
        format!(
            "let: n = random 1..{members}\nlet: each = sequence 1..{members}\nlet: other = sequence 1..{OTHERS}\n\n{}",
            self.steps.replace("{g}", &members.to_string())
        )
    }
}

fn operations(kind: &Kind) -> Vec<Operation> {
    const QUEUE: &str = "session: s\nconnections: 4\nqueue: 10\n\n";
    let group = format!("cn=group {{g}},{SUFFIX}");
    let around = format!("cn=around {{g}},{SUFFIX}");
    let people = format!("ou=people,{SUFFIX}");
    let member = format!("uid=m{{g}}x${{n:7}},{people}");
    let change = |what: &str| {
        format!(
            "dn: {group}\nchangetype: modify\n{what}: member\nmember: uid=other${{other:7}},{people}\n\nwait:\n\n"
        )
    };
    let rename = |from: &str, to: &str| {
        format!(
            "dn: uid={from}{{g}}x${{each:7}},{people}\nchangetype: modrdn\nnewrdn: uid={to}{{g}}x${{each:7}}\n\
             deleteoldrdn: 1\n\nwait:\n\n"
        )
    };
    let mut operations = vec![
        Operation {
            name: "add or remove a member",
            steps: format!(
                "session: s\n\ngroup:\n\n{}{}end: group\n",
                change("add"),
                change("delete")
            ),
        },
        Operation {
            name: "compare a member",
            steps: format!("{QUEUE}compare: {group}\nmember: {member}\n"),
        },
        Operation {
            name: "memberOf of a member",
            steps: format!(
                "{QUEUE}expect-value: memberOf: {group}\nsearch: {member}\nscope: base\nattributes: memberOf\n"
            ),
        },
        Operation {
            name: "a member by (memberOf=GROUP)",
            steps: format!(
                "{QUEUE}expect-entries: 1\nsearch: {member}\nscope: base\nfilter: (memberOf={group})\nattributes: 1.1\n"
            ),
        },
    ];
    let nested = match kind.nested {
        None => Vec::new(),
        Some(Nested::InChain) => vec![
            format!(
                "{QUEUE}expect-entries: 2\nsearch: {SUFFIX}\n\
                 filter: (member:1.2.840.113556.1.4.1941:={member})\nattributes: 1.1\n"
            ),
            format!(
                "{QUEUE}expect-entries: 1\nsearch: {member}\nscope: base\n\
                 filter: (memberOf:1.2.840.113556.1.4.1941:={around})\nattributes: 1.1\n"
            ),
        ],
        Some(Nested::MemberOf) => vec![
            format!(
                "{QUEUE}expect-value: memberOf: {around}\nsearch: {member}\nscope: base\nattributes: memberOf\n"
            ),
            format!(
                "{QUEUE}expect-entries: 1\nsearch: {member}\nscope: base\nfilter: (memberOf={around})\nattributes: 1.1\n"
            ),
        ],
    };
    let names = [
        "all groups of a member, nested",
        "a member of a group around",
    ];
    let nested = names.into_iter().zip(nested);
    operations.extend(nested.map(|(name, steps)| Operation { name, steps }));
    if kind.follows {
        // The last: one may be left with its other name.
        operations.push(Operation {
            name: "rename a member",
            steps: format!(
                "session: s\n\ngroup:\n\n{}{}end: group\n",
                rename("m", "r"),
                rename("r", "m")
            ),
        });
    }
    operations
}

/// What an add costs with unique values and without.
fn unique(options: &Options, folder: &Folder) -> Result<String> {
    const NAME: &str = "add an entry";
    if (options.row.as_ref()).is_some_and(|row| !NAME.contains(row.as_str())) {
        return Ok(String::new());
    }
    let mut text =
        "\n| | | without, µs CPU | with unique values of uid and mail, µs CPU | ratio |\n\
                    | --- | --- | ---: | ---: | ---: |\n"
            .to_owned();
    let plan = format!(
        "let: n = sequence 1..100000000\n\nsession: s\nconnections: 8\n\n\
         dn: uid=new${{n}},ou=people,{SUFFIX}\nobjectClass: inetOrgPerson\nuid: new${{n}}\ncn: New ${{n}}\nsn: New\n\
         mail: new${{n}}@example.com\n"
    );
    for product in [Product::Sapwood, Product::Slapd] {
        if options.only.is_some_and(|only| only != product) {
            continue;
        }
        let mut costs = Vec::new();
        for (name, setup) in &UNIQUE {
            let parent = folder.path.join(format!("{product}-{name}"));
            let ldif = parent.with_extension("ldif");
            write_groups(&ldif, &options.members, false)?;
            let prepared = prepare(&parent, product, setup, options)?;
            let server = prepared.import(&ldif)?.0.start()?;
            let cost = load(options).update_cpu_us(&plan, &server);
            costs.push(cost.with_context(|| format!("{product}, {name}"))?);
            server.stop()?;
            fs::remove_file(&ldif)?;
            fs::remove_dir_all(&parent)?;
        }
        let [without, with] = costs[..] else {
            anyhow::bail!("two costs");
        };
        let ratio = with / without;
        text += &format!("| {NAME} | {product} | {without:.1} | {with:.1} | {ratio:.2} |\n");
    }
    Ok(text)
}

/// What it takes to delete a tree: Sapwood is asked for all of it, slapd entry by entry, for some time.
fn trees(options: &Options, folder: &Folder) -> Result<String> {
    const TREE_DELETE: &str = "1.2.840.113556.1.4.805";
    const SLAPD_SETUP: Setup = Setup {
        rules: &[&["memberof"], &["refint", "--attributes", "member"]],
        modules: &["memberof", "refint"],
        overlays: "overlay memberof\noverlay refint\nrefint_attributes member\n",
    };
    let mut text = "\n| | | entries deleted | seconds | µs each | µs CPU each |\n\
                    | --- | --- | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for product in [Product::Sapwood, Product::Slapd] {
        if options.only.is_some_and(|only| only != product) {
            continue;
        }
        let parent = folder.path.join(format!("{product}-tree"));
        let ldif = parent.with_extension("ldif");
        let mut out = BufWriter::new(fs::File::create(&ldif)?);
        write_head(&mut out)?;
        for number in 2..=options.tree {
            write_person(&mut out, &format!("u{number:07}"), "")?;
        }
        out.flush()?;
        let prepared = prepare(&parent, product, &SLAPD_SETUP, options)?;
        let server = prepared.import(&ldif)?.0.start()?;
        fs::remove_file(&ldif)?;
        let before = server.cpu()?;
        let (how, deleted, seconds) = match product {
            Product::Sapwood => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let seconds = runtime.block_on(delete_tree(&server, TREE_DELETE))?;
                ("in one request", u64::from(options.tree), seconds)
            }
            Product::Slapd => {
                let plan = format!(
                    "let: n = sequence 2..{}\n\nsession: s\nqueue: 100\n\n\
                     dn: uid=u${{n:7}},ou=people,{SUFFIX}\nchangetype: delete\n",
                    options.tree
                );
                let time = Duration::from_secs_f64(options.seconds);
                let report = load(options).drive(&plan, &server, Some(time))?;
                ("one by one", report.total.answered, report.seconds)
            }
        };
        let cpu = server.cpu()?.saturating_sub(before);
        text += &format!(
            "| tree of {} entries | {product}, {how} | {deleted} | {seconds:.2} | {:.1} | {:.1} |\n",
            options.tree,
            seconds * 1e6 / deleted as f64,
            cpu.as_secs_f64() * 1e6 / deleted as f64,
        );
        server.stop()?;
        fs::remove_dir_all(&parent)?;
    }
    Ok(text)
}

/// Deletes all people; in how many seconds.
async fn delete_tree(server: &Server, control: &str) -> Result<f64> {
    let client = Client::connect(&server.url, &Connecting::default()).await?;
    client.bind(ADMIN_DN, ADMIN_PASSWORD.as_bytes()).await?;
    let mut controls = ControlsBuf::default();
    controls.push(Control {
        oid: control,
        critical: true,
        value: None,
    });
    let begun = Instant::now();
    let people = format!("ou=people,{SUFFIX}");
    let reply = client.request(Request::Delete(&people), controls.view());
    let reply = reply.await?;
    let message = reply.message()?;
    let result = message.op.result().context("no result")?;
    ensure!(
        result.code.is_success(),
        "{}: {}",
        result.code,
        result.diagnostic
    );
    Ok(begun.elapsed().as_secs_f64())
}
