//! `sapwood demo`: a directory of made-up entries in a scratch folder, served on a free port of this machine.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use sapwood_directory::{
    Directory, IMPORT_MEMORY_BYTES_MIN, ImportFormat, ImportObserver, ImportOptions,
    ImportProgress, ImportRejection, ImportSource, Reshape,
};
use sapwood_drive::generate::Generator;
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter_text;
use sapwood_ldap::ldif;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{
    Authentication, BindRequest, Frame, Message, Request, Response, ResponseMessage, Scope,
    SearchRequest, frame,
};
use sapwood_ldap::result::ResultCode;
use sapwood_server::listen::ListenUrl;
use sapwood_server::password::{self, Password};
use sapwood_server::{Config, Flags, Server};

use crate::cli::{Demo, Init};
use crate::commands::init;
use crate::commands::serve::{HangUp, Signals};
use crate::open;
use crate::output::Output;

const SUFFIX: &str = "dc=example,dc=com";
const ENTRIES: u64 = 10_000;
/// The same entries each time.
const SEED: u64 = 1;
/// The longest answer that the searches below can have.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// One of the searches to paste.
struct Suggestion {
    what: &'static str,
    base: String,
    scope: (&'static str, Scope),
    filter: String,
    attributes: &'static [&'static str],
}

pub(crate) fn run(args: &Demo, out: &mut Output) -> Result<ExitCode> {
    // Ctrl-C removes the scratch folder whenever it comes.
    let mut signals = Signals::catch()?;
    let scratch = tempfile::Builder::new().prefix("sapwood-demo-").tempdir()?;
    let folder = scratch.path().join("directory");
    let password = password::generate();
    let make = Init {
        folder: folder.clone(),
        suffixes: vec![SUFFIX.into()],
        admin_dn: None,
        admin_password_file: None,
        indexes: vec![
            "objectClass,uid,member eq".parse(),
            "cn,sn,mail eq,sub".parse(),
        ]
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(anyhow::Error::msg)?,
        schema_files: Vec::new(),
        in_memory: false,
        own_stores: false,
        partitions: Vec::new(),
    };
    let made = init::make(&make, &password, |_| Ok(()))?;
    let config = Config::load(&folder)?;
    let directory = open::directory(&folder, &config, false)?;
    let generator = Generator::new(SUFFIX, ENTRIES, SEED)?;
    fill(&directory, &generator, scratch.path(), &made.admin_dn)?;

    let flags = Flags {
        listen: vec![ListenUrl::Ldap("127.0.0.1".into(), 0)],
        ..Flags::default()
    };
    let server = Server::start(&folder, directory, config, flags)?;
    let url = server
        .urls()
        .first()
        .map(ToString::to_string)
        .context("no address to listen on")?;
    let password_text = String::from_utf8_lossy(&password).into_owned();
    writeln!(out, "Serving {ENTRIES} made-up entries below {SUFFIX}")?;
    writeln!(out, "  URL:            {url}")?;
    writeln!(out, "  Administrator:  {}", made.admin_dn)?;
    writeln!(out, "  Password:       {password_text}")?;
    let suggestions = suggestions(&generator);
    writeln!(out, "Try:")?;
    for Suggestion {
        what,
        base,
        scope: (scope, _),
        filter,
        attributes,
    } in &suggestions
    {
        writeln!(out, "  # {what}")?;
        writeln!(
            out,
            "  ldapsearch -x -LLL -H {url} -D '{}' -w '{password_text}' -b '{base}' -s {scope} '{filter}' {}",
            made.admin_dn,
            attributes.join(" ")
        )?;
    }
    if args.once {
        let mut client = Client::connect(&url)?;
        client.bind(&made.admin_dn, &password)?;
        for suggestion in &suggestions {
            writeln!(out, "\n# {}", suggestion.what)?;
            client.search(suggestion, out)?;
        }
    } else {
        writeln!(out, "Ctrl-C stops and removes everything.")?;
        signals.until_stopped(&server, HangUp::Stops, None);
    }
    drop(server);
    scratch.close().context("removing the scratch folder")?;
    Ok(ExitCode::SUCCESS)
}

fn suggestions(generator: &Generator) -> [Suggestion; 3] {
    let uid = generator.uid(generator.people().start);
    let unit = generator.dn(generator.units().start);
    let group = generator.dn(generator.groups().start);
    [
        Suggestion {
            what: "a person by uid",
            base: SUFFIX.into(),
            scope: ("sub", Scope::Subtree),
            filter: format!("(uid={uid})"),
            attributes: &[],
        },
        Suggestion {
            what: "people of one unit whose surname begins with M",
            base: unit,
            scope: ("one", Scope::OneLevel),
            filter: "(&(objectClass=inetOrgPerson)(sn=M*))".into(),
            attributes: &["cn", "mail"],
        },
        Suggestion {
            what: "a group",
            base: group,
            scope: ("base", Scope::Base),
            filter: "(objectClass=*)".into(),
            attributes: &["cn", "member", "numSubordinates", "entryUUID"],
        },
    ]
}

/// Loads all entries.
fn fill(
    directory: &Directory,
    generator: &Generator,
    scratch: &Path,
    admin_dn: &str,
) -> Result<()> {
    let mut text = Vec::new();
    generator.write_ldif(&mut text)?;
    let source = ImportSource {
        name: "made-up entries".into(),
        reader: Box::new(text.as_slice()),
        format: ImportFormat::Ldif,
        again: None,
    };
    let options = ImportOptions {
        memory_bytes: IMPORT_MEMORY_BYTES_MIN,
        folder: scratch.to_owned(),
        threads: 1,
        hasher: None,
        creator: admin_dn.to_owned(),
        reshape: &Reshape::default(),
        skip_present: false,
    };
    let report = directory.import(vec![source], &options, &Quiet)?;
    ensure!(
        report.added == generator.entries(),
        "{} made-up entries were rejected",
        report.rejected
    );
    Ok(())
}

/// Made-up entries are few and right: there is nothing to show.
struct Quiet;

impl ImportObserver for Quiet {
    fn progress(&self, _: ImportProgress) {}
    fn rejected(&self, _: ImportRejection<'_>) {}
}

/// Speaks to the server as any client would, one request after the other.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    next_id: u32,
}

impl Client {
    fn connect(url: &str) -> Result<Self> {
        let address = url.strip_prefix("ldap://").context("not an ldap:// URL")?;
        Ok(Self {
            stream: TcpStream::connect(address)?,
            received: Vec::new(),
            next_id: 1,
        })
    }

    fn bind(&mut self, dn: &str, password: &Password) -> Result<()> {
        self.ask(
            Request::Bind(BindRequest {
                version: 3,
                name: dn,
                authentication: Authentication::Simple(password),
            }),
            |_| (),
        )
    }

    /// Searches and prints the entries as LDIF.
    fn search(&mut self, suggestion: &Suggestion, out: &mut Output) -> Result<()> {
        let filter = filter_text::parse(&suggestion.filter)?;
        let mut attributes = OctetStringsBuf::default();
        suggestion
            .attributes
            .iter()
            .for_each(|attribute| attributes.push(attribute.as_bytes()));
        let request = SearchRequest {
            attributes: attributes.view(),
            ..SearchRequest::new(&suggestion.base, suggestion.scope.1, filter.as_filter())
        };
        let mut text = Vec::new();
        self.ask(Request::Search(request), |response| {
            if let Response::SearchEntry(entry) = response {
                ldif::write_dn(&mut text, entry.dn);
                for attribute in entry.attributes.iter() {
                    let description = String::from_utf8_lossy(attribute.description);
                    attribute
                        .values
                        .iter()
                        .for_each(|value| ldif::write_value(&mut text, &description, value));
                }
                text.push(b'\n');
            }
        })?;
        Ok(out.write_all(&text)?)
    }

    /// Sends a request and hands its responses to `each`, up to the one that ends it, which must be a success.
    fn ask(&mut self, op: Request<'_>, mut each: impl FnMut(&Response<'_>)) -> Result<()> {
        let id = self.next_id;
        self.next_id += 1;
        let mut request = Vec::new();
        Message {
            id,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut request);
        self.stream.write_all(&request)?;
        loop {
            let Frame::Complete(length) = frame(&self.received, ANSWER_BYTES_MAX)? else {
                let mut piece = [0; 4096];
                let count = self.stream.read(&mut piece)?;
                if count == 0 {
                    bail!("the server closed the connection");
                }
                self.received.extend_from_slice(&piece[..count]);
                continue;
            };
            let response = ResponseMessage::decode(&self.received[..length])?;
            each(&response.op);
            let end = response
                .op
                .result()
                .map(|result| (result.code, result.diagnostic.to_owned()));
            self.received.drain(..length);
            match end {
                None => {}
                Some((ResultCode::Success, _)) => return Ok(()),
                Some((code, diagnostic)) => bail!("{code} {diagnostic}"),
            }
        }
    }
}
