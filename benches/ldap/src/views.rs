//! Parts of long results, by pages and by list views: the first, one in the middle and the last, of a directory and of
//! one with ten times as many entries. slapd has the overlay sssvlv, and sorts for each connection.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sapwood_client::{Client, Options as Connecting};
use sapwood_figures::{median, publish};
use sapwood_ldap::controls::{
    Control, ControlsBuf, LIST_VIEW_REQUEST, LIST_VIEW_RESPONSE, ListTarget, ListView,
    ListViewResult, PAGED_RESULTS, PagedResults, SORT_REQUEST, SortKey, put_sort_keys,
};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Response, Scope, SearchRequest};
use sapwood_ldap::result::{LdapResult, ResultCode};

use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Index, Product, Server, Setup};
use crate::{Folder, SUFFIX};

/// How many times as much a part of the longer result may take. What depends on chance is added: see [`SLACK_MS`].
const RATIO_MAX: f64 = 1.5;
/// Milliseconds by which two equal requests differ.
const SLACK_MS: f64 = 0.3;

/// How long a server that is busy is left alone.
const BUSY_WAIT: Duration = Duration::from_millis(1);

/// Sapwood's indexes. slapd sorts without any.
const INDEXES: &[Index] = &[("objectClass,uid", "eq"), ("sn,entryUUID", "eq,ord")];
const SLAPD_INDEXES: &[Index] = &[("objectClass,uid,sn,entryUUID", "eq")];

const SETUP: Setup = Setup {
    rules: &[],
    modules: &["sssvlv"],
    overlays: "overlay sssvlv\n",
};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Entries of the larger directory; the other one has a tenth of them
    #[arg(long, value_name = "N", default_value_t = 250_000)]
    entries: u32,
    /// Entries of a part
    #[arg(long, value_name = "N", default_value_t = 100)]
    part: u32,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only this server
    #[arg(long)]
    only: Option<Product>,
    /// The sapwood program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    sapwood: Option<PathBuf>,
    /// Where data goes: a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
    /// Put the table into performance.md of this folder
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
}

/// How parts of a result are asked for.
struct Manner {
    name: &'static str,
    filter: &'static str,
    /// What it is sorted by, and the ordering rule, which slapd has to be told.
    sorted_by: Option<(&'static str, &'static str)>,
    has_views: bool,
    /// The part that takes longer the more there are: the first where the list is made then, the last where entries
    /// without a value are looked for then.
    grows: Option<usize>,
}

const MANNERS: [Manner; 4] = [
    Manner {
        name: "pages",
        filter: "(objectClass=inetOrgPerson)",
        sorted_by: None,
        has_views: false,
        grows: None,
    },
    Manner {
        name: "pages, sorted by sn",
        filter: "(objectClass=inetOrgPerson)",
        sorted_by: Some(("sn", "caseIgnoreOrderingMatch")),
        has_views: false,
        grows: Some(3),
    },
    Manner {
        name: "list views, sorted by sn",
        filter: "(objectClass=inetOrgPerson)",
        sorted_by: Some(("sn", "caseIgnoreOrderingMatch")),
        has_views: true,
        grows: Some(0),
    },
    Manner {
        name: "list views, all by entryUUID",
        filter: "(entryUUID=*)",
        sorted_by: Some(("entryUUID", "UUIDOrderingMatch")),
        has_views: true,
        grows: None,
    },
];

/// Parts that are measured.
const PARTS: [&str; 4] = ["first", "middle", "middle, by value", "last"];

/// Milliseconds that each part takes, if there is such a one.
type Times = [Option<f64>; PARTS.len()];

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        options.rounds > 0 && options.part > 0 && options.part < options.entries / 100,
        "at least one round, and parts that are few of the entries"
    );
    let folder = Folder::create(&options.folder)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let sizes = [options.entries / 10, options.entries];
    let mut text = format!(
        "| | | | {} entries, ms | {} entries, ms | ratio | required | |\n| --- | --- | --- | ---: | ---: | ---: | ---: | --- |\n",
        sizes[0], sizes[1]
    );
    let mut missed = false;
    for product in [Product::Sapwood, Product::Slapd] {
        if options.only.is_some_and(|only| only != product) {
            continue;
        }
        let mut times = Vec::new();
        for size in sizes {
            let parent = folder.path.join(format!("{product}-{size}"));
            fs::create_dir(&parent)?;
            let ldif = parent.join("people.ldif");
            write_people(&ldif, size)?;
            let indexes = match product {
                Product::Sapwood => INDEXES,
                Product::Slapd => SLAPD_INDEXES,
            };
            let prepared = product.prepare_as(&parent, &[], indexes, options.sapwood.as_deref())?;
            let prepared = prepared.with(&SETUP)?;
            let server = prepared.import(&ldif)?.0.start()?;
            times.push(
                runtime
                    .block_on(measure(&server, options, size))
                    .with_context(|| format!("{product}, {size} entries"))?,
            );
            server.stop()?;
            fs::remove_dir_all(&parent)?;
        }
        let [few, many] = &times[..] else {
            bail!("two sizes");
        };
        for (manner, (few, many)) in MANNERS.iter().zip(few.iter().zip(many)) {
            for (at, (few, many)) in few.iter().zip(many).enumerate() {
                let (Some(few), Some(many)) = (few, many) else {
                    continue;
                };
                let is_required = product == Product::Sapwood && manner.grows != Some(at);
                let is_met = *many <= few * RATIO_MAX + SLACK_MS;
                missed |= is_required && !is_met;
                let (required, verdict) = match (is_required, is_met) {
                    (false, _) => (String::new(), ""),
                    (true, true) => (format!("≤ {RATIO_MAX} × + {SLACK_MS} ms"), "met"),
                    (true, false) => (format!("≤ {RATIO_MAX} × + {SLACK_MS} ms"), "**missed**"),
                };
                text += &format!(
                    "| {product} | {} | {part} | {few:.2} | {many:.2} | {:.2} | {required} | {verdict} |\n",
                    manner.name,
                    many / few,
                    part = PARTS[at],
                );
            }
        }
    }
    println!("{text}");
    if let Some(docs) = &options.docs {
        publish("views", &docs.join("performance.md"), &text)?;
    }
    ensure!(
        !missed,
        "a part of a longer result takes longer than it may"
    );
    Ok(())
}

fn write_people(path: &Path, entries: u32) -> Result<()> {
    let mut out = std::io::BufWriter::new(fs::File::create(path)?);
    write!(
        out,
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: Example\ndc: example\n\n\
         dn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people\n"
    )?;
    for number in 2..entries {
        let name = surname(number);
        write!(
            out,
            "\ndn: uid=u{number},ou=people,{SUFFIX}\nobjectClass: inetOrgPerson\nuid: u{number}\ncn: {name} {number}\n\
             sn: {name}\nmail: u{number}@example.com\n"
        )?;
    }
    Ok(out.flush()?)
}

/// Eight letters, others for each number and in no order.
fn surname(number: u32) -> String {
    let mut left = number.wrapping_mul(0x9E37_79B9);
    let letters = (0..8).map(|_| {
        let letter = b'a' + (left % 16) as u8;
        left /= 16;
        char::from(letter)
    });
    letters.collect()
}

/// What each manner takes, in its median.
async fn measure(server: &Server, options: &Options, entries: u32) -> Result<Vec<Times>> {
    let mut all = Vec::new();
    for manner in &MANNERS {
        let mut rounds = Vec::new();
        for _ in 0..options.rounds {
            let round = match manner.has_views {
                true => views(server, manner, options.part).await,
                false => pages(server, manner, options.part, entries).await,
            };
            rounds.push(round.context(manner.name)?);
        }
        let mut times = Times::default();
        for (part, time) in times.iter_mut().enumerate() {
            *time = median(rounds.iter().filter_map(|round| round[part]));
        }
        eprintln!("{}: {}: {times:.2?} ms", server.product, manner.name);
        all.push(times);
    }
    Ok(all)
}

/// What an answer says.
struct Answer {
    entries: u32,
    /// What the first of them is sorted by.
    first: Vec<u8>,
    ms: f64,
    cookie: Vec<u8>,
    /// Position, count, and the context of a view.
    view: Option<(u32, u32, Vec<u8>)>,
}

/// Pages from the first to the last; slapd wants all of them in the size of the first.
async fn pages(server: &Server, manner: &Manner, part: u32, entries: u32) -> Result<Times> {
    let client = connect(server).await?;
    let mut cookie = Vec::new();
    let mut times = Times::default();
    // The people are two fewer than the entries.
    let people = entries - 2;
    let last = (people - 1) / part;
    let mut seen = 0;
    for number in 0..=last {
        let mut value = Vec::new();
        PagedResults {
            size: part,
            cookie: &cookie,
        }
        .encode(&mut value);
        let answer = ask(&client, manner, (PAGED_RESULTS, &value)).await?;
        seen += answer.entries;
        let part = match number {
            0 => Some(0),
            _ if number == last / 2 => Some(1),
            _ if number == last => Some(3),
            _ => None,
        };
        if let Some(part) = part {
            times[part] = Some(answer.ms);
        }
        cookie = answer.cookie;
    }
    ensure!(seen == people, "{seen} of {people} entries");
    Ok(times)
}

/// Views of a list: the first, one in the middle, the same again by the value that it begins with, and the last.
async fn views(server: &Server, manner: &Manner, part: u32) -> Result<Times> {
    let client = connect(server).await?;
    let mut times = Times::default();
    let mut context: Option<Vec<u8>> = None;
    let mut count = 0;
    let mut middle = Vec::new();
    for (at, time) in times.iter_mut().enumerate() {
        let target = match at {
            0 => (1, 0),
            1 => (count / 2, count),
            _ => (count - part, count),
        };
        let target = match at {
            2 => ListTarget::Value(&middle),
            _ => ListTarget::Offset {
                offset: target.0,
                content_count: target.1,
            },
        };
        let mut value = Vec::new();
        ListView {
            before: 0,
            after: part - 1,
            target,
            context: context.as_deref(),
        }
        .encode(&mut value);
        let answer = ask(&client, manner, (LIST_VIEW_REQUEST, &value)).await?;
        ensure!(
            answer.entries == part,
            "{} of {part} entries",
            answer.entries
        );
        let (position, entries, named) = answer.view.context("no answer to the view")?;
        ensure!(position > 0 && entries > part, "{position} of {entries}");
        (count, context, middle) = (entries, Some(named), answer.first);
        *time = Some(answer.ms);
    }
    Ok(times)
}

async fn connect(server: &Server) -> Result<Client> {
    let client = Client::connect(&server.url, &Connecting::default()).await?;
    client.bind(ADMIN_DN, ADMIN_PASSWORD.as_bytes()).await?;
    Ok(client)
}

/// Asks for a part of a result.
async fn ask(client: &Client, manner: &Manner, control: (&str, &[u8])) -> Result<Answer> {
    let filter = filter_text::parse(manner.filter)?;
    let sorted_by = manner.sorted_by.map_or("uid", |(attribute, _)| attribute);
    let attributes: OctetStringsBuf = [sorted_by].into_iter().collect();
    let mut request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
    request.attributes = attributes.view();
    let mut controls = ControlsBuf::default();
    let mut keys = Vec::new();
    if let Some((attribute, rule)) = manner.sorted_by {
        let key = SortKey {
            attribute: attribute.as_bytes(),
            rule: Some(rule.as_bytes()),
            reverse: false,
        };
        put_sort_keys(&mut keys, [key]);
        controls.push(Control {
            oid: SORT_REQUEST,
            critical: true,
            value: Some(&keys),
        });
    }
    controls.push(Control {
        oid: control.0,
        critical: true,
        value: Some(control.1),
    });
    let mut begun = Instant::now();
    let mut results = client.search(request, controls.view())?;
    let (mut entries, mut first) = (0, Vec::new());
    loop {
        let reply = results.next_reply().await?;
        let message = reply.message()?;
        match message.op {
            Response::SearchEntry(entry) => {
                if entries == 0 {
                    let attribute = entry.attributes.iter().next();
                    let value = attribute.and_then(|attribute| attribute.values.iter().next());
                    first = value.unwrap_or_default().to_vec();
                }
                entries += 1;
            }
            Response::SearchDone(result) => {
                let LdapResult {
                    code, diagnostic, ..
                } = result;
                // slapd may not have noticed yet that it has sent the part before.
                if code == ResultCode::Busy {
                    tokio::time::sleep(BUSY_WAIT).await;
                    begun = Instant::now();
                    results = client.search(request, controls.view())?;
                    continue;
                }
                ensure!(code.is_success(), "{code}: {diagnostic}");
                let mut answer = Answer {
                    entries,
                    first,
                    ms: begun.elapsed().as_secs_f64() * 1e3,
                    cookie: Vec::new(),
                    view: None,
                };
                for control in message.controls.iter() {
                    let value = control.value.unwrap_or_default();
                    match control.oid {
                        PAGED_RESULTS => {
                            answer.cookie = PagedResults::decode(value)?.cookie.to_vec();
                        }
                        LIST_VIEW_RESPONSE => {
                            let view = ListViewResult::decode(value)?;
                            let context = view.context.unwrap_or_default().to_vec();
                            answer.view = Some((view.position, view.content_count, context));
                        }
                        _ => {}
                    }
                }
                return Ok(answer);
            }
            _ => bail!("an answer that is not expected"),
        }
    }
}
