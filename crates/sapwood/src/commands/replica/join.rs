//! `sapwood replica join`: makes a directory that is a copy of another one.
//!
//! The folder is made under another name, and gets its own when it is complete:
//!
//! | step | in `DIR.joining` | when it is killed and run again |
//! | --- | --- | --- |
//! | a password for the account is made up | `replica-password` | it is used |
//! | the token is redeemed for the account | | it is not: the account is there |
//! | all data are received | `backup` | anew |
//! | a directory is made of them, with an agreement | `data`, `sapwood.toml` and the rest | anew |

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use sapwood_client::{Connection, Options, Trust};
use sapwood_directory::engine::Embedded;
use sapwood_directory::{
    Agreement, AgreementPassword, AgreementPosition, Directory, Replicated, Requester, Ticket as _,
    TimedUuids, Update, UpdateRequest, first_position, renew_feed,
};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::extended::{BackupPart, REDEEM_INVITATION, RedeemInvitation, SEND_BACKUP};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{ExtendedRequest, Message, Request, Response, ResponseMessage};
use sapwood_ldap::result::ResultCode;
use sapwood_server::config::CONFIG_FILE;
use sapwood_server::invitations::Token;
use sapwood_server::{Config, password, tls};
use tokio::time::timeout;

use super::agreements::{SYNCREPL, change};
use crate::cli::{FIRST_STORE, Join};
use crate::commands::passwd::{self, StoredPassword};
use crate::open;
use crate::output::Output;
use crate::passing::{refuse_existing, remove};
use crate::progress::Progress;

/// The file of the account's password.
const PASSWORD_FILE: &str = "replica-password";
/// The folder of what is received.
const BACKUP: &str = "backup";
/// Bytes of a message of the provider: a part of its backup.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Seconds that the provider may be silent: it sends nothing while it makes its backup.
const SILENCE_SECONDS_MAX: u64 = 3600;
/// Seconds for everything else.
const ANSWER_SECONDS_MAX: u64 = 30;
const MESSAGE_ID: u32 = 2;
/// Bytes of the file with the password.
const PASSWORD_BYTES_MAX: u64 = 1024;

pub(super) fn run(args: &Join, out: &mut Output) -> Result<()> {
    if !args.read_only {
        bail!(
            "join makes read-only copies: say --read-only. Servers that take updates from each other are set up by \
             'sapwood replica add --multi-provider'"
        );
    }
    let token: Token = args.token.trim().parse()?;
    if args.sid == Some(token.sid) {
        bail!(
            "{} is the number of {}: take another one",
            token.sid,
            token.url
        );
    }
    refuse_existing(&args.folder)?;
    // What fails is told before the token is used up.
    let administrator = match &args.admin_password_file {
        Some(file) => passwd::read(file)?,
        None => passwd::generate(out, "--admin-password-file")?,
    };
    let passing = beside(&args.folder)?;
    let account = Account::kept(&passing, &token)?;
    clear(&passing)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let mut progress = Progress::new(0, "MiB");
    let received = runtime.block_on(receive(
        &token,
        &account,
        &passing.join(BACKUP),
        &mut progress,
    ));
    progress.finish();
    received.with_context(|| token.url.clone())?;
    let admin_dn = build(args, &token, &passing, &administrator)?;
    fs::rename(&passing, &args.folder).with_context(|| args.folder.display().to_string())?;
    let above = args.folder.parent().filter(|above| *above != Path::new(""));
    File::open(above.unwrap_or(Path::new(".")))?.sync_all()?;
    let folder = args.folder.display();
    out.say(format_args!(
        "{folder} is a copy of {}, read-only, and follows it while it is served.",
        token.url
    ));
    out.say(format_args!("Administrator:    {admin_dn}"));
    if args.admin_password_file.is_none() {
        out.say(format_args!(
            "Password:         {}   (shown this once; 'sapwood passwd' sets a new one)",
            String::from_utf8_lossy(&administrator)
        ));
    }
    out.say(format_args!(
        "Next: 'listen' in {folder}/{CONFIG_FILE}, then 'sapwood serve {folder}'"
    ));
    Ok(())
}

/// What the folder is called until it is complete.
fn beside(folder: &Path) -> Result<PathBuf> {
    let name = folder.file_name().context("the folder has no name")?;
    let mut name = name.to_owned();
    name.push(".joining");
    Ok(folder.with_file_name(name))
}

/// Removes what a run has left that did not come to its end, but for the password.
fn clear(passing: &Path) -> Result<()> {
    for found in fs::read_dir(passing).with_context(|| passing.display().to_string())? {
        let path = found?.path();
        if !path.ends_with(PASSWORD_FILE) {
            remove(&path);
        }
    }
    Ok(())
}

/// The account at the provider.
struct Account {
    dn: String,
    password: String,
    /// Whether it was made before, by a run that did not come to its end.
    may_exist: bool,
}

impl Account {
    /// The one whose password is kept, or one whose password is kept from now on.
    fn kept(passing: &Path, token: &Token) -> Result<Account> {
        let (dn, path) = (token.dn(), passing.join(PASSWORD_FILE));
        let mut text = String::new();
        if let Ok(file) = File::open(&path) {
            file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text)?;
        }
        // Of another token it is of no use.
        let mut lines = text.lines();
        if let (Some(password), Some(of)) = (lines.next(), lines.next())
            && of == dn
        {
            let password = password.to_owned();
            return Ok(Account {
                dn,
                password,
                may_exist: true,
            });
        }
        let name = || path.display().to_string();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(passing)
            .with_context(name)?;
        let password = [password::generate(), password::generate()].map(|half| half.to_vec());
        let password = String::from_utf8(password.concat())?;
        let write = || {
            let new = path.with_extension("new");
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            writeln!(file, "{password}\n{dn}")?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(passing)?.sync_all()
        };
        write().with_context(name)?;
        Ok(Account {
            dn,
            password,
            may_exist: false,
        })
    }
}

/// Gets the account, if it is not there yet, and all data.
async fn receive(
    token: &Token,
    account: &Account,
    backup: &Path,
    progress: &mut Progress,
) -> Result<()> {
    let Account { dn, password, .. } = account;
    let mut connection = connect(token).await?;
    let is_there = account.may_exist
        && in_time(connection.bind(dn, password.as_bytes()))
            .await
            .is_ok();
    if !is_there {
        if account.may_exist {
            connection = connect(token).await?;
        }
        let mut value = Vec::new();
        RedeemInvitation {
            name: &token.name,
            secret: &token.secret,
            password: password.as_bytes(),
        }
        .encode(&mut value);
        ask(&mut connection, REDEEM_INVITATION, Some(&value)).await?;
        let answer =
            in_time(async { Ok::<_, anyhow::Error>(connection.receive().await?.to_vec()) });
        succeeded(&ResponseMessage::decode(&answer.await?)?)?;
        in_time(connection.bind(dn, password.as_bytes())).await?;
    }
    ask(&mut connection, SEND_BACKUP, None).await?;
    fs::create_dir(backup)?;
    let mut files = Files::new(backup);
    loop {
        let silence = Duration::from_secs(SILENCE_SECONDS_MAX);
        let received = timeout(silence, connection.receive()).await;
        let received =
            received.map_err(|_| anyhow!("it has been silent for {SILENCE_SECONDS_MAX} s"))??;
        let message = ResponseMessage::decode(received)?;
        match &message.op {
            Response::Intermediate(told) if told.name == Some(SEND_BACKUP) => {
                files.take(&BackupPart::decode(told.value.unwrap_or_default())?)?;
                progress.set(files.bytes >> 20);
            }
            _ => {
                succeeded(&message)?;
                return files.finish();
            }
        }
    }
}

async fn connect(token: &Token) -> Result<Connection> {
    let options = Options {
        trust: Trust::Fingerprint(token.fingerprint),
        start_tls: token.url.starts_with("ldap:"),
        message_bytes_max: MESSAGE_BYTES_MAX,
    };
    let opened = in_time(Connection::open(&token.url, &options)).await;
    opened.map_err(|error| match error.downcast_ref() {
        Some(sapwood_client::Error::Tls(_)) => error
            .context("there is no server with the certificate whose fingerprint is in the token"),
        _ => error,
    })
}

/// What comes of something that should not take long.
async fn in_time<T, E>(done: impl Future<Output = Result<T, E>>) -> Result<T>
where
    anyhow::Error: From<E>,
{
    let limit = Duration::from_secs(ANSWER_SECONDS_MAX);
    let done = timeout(limit, done).await;
    Ok(done.map_err(|_| anyhow!("no answer within {ANSWER_SECONDS_MAX} s"))??)
}

async fn ask(connection: &mut Connection, name: &str, value: Option<&[u8]>) -> Result<()> {
    let mut message = Vec::new();
    Message {
        id: MESSAGE_ID,
        op: Request::Extended(ExtendedRequest { name, value }),
        controls: Controls::EMPTY,
    }
    .encode(&mut message);
    in_time(connection.send(&message)).await
}

fn succeeded(message: &ResponseMessage<'_>) -> Result<()> {
    match message.op.result() {
        Some(result) if result.code == ResultCode::Success => Ok(()),
        Some(result) => bail!("{}: {}", result.code, result.diagnostic),
        None => bail!("an answer that was not asked for"),
    }
}

/// The files of a backup, as they come.
struct Files<'f> {
    folder: &'f Path,
    open: Option<(String, File)>,
    count: usize,
    bytes: u64,
}

impl<'f> Files<'f> {
    fn new(folder: &'f Path) -> Files<'f> {
        Files {
            folder,
            open: None,
            count: 0,
            bytes: 0,
        }
    }

    fn take(&mut self, part: &BackupPart<'_>) -> Result<()> {
        let number = part.file.strip_prefix("data-");
        if number.is_none_or(|number| number.parse::<u16>().is_err()) {
            bail!("it sends a file that is none of a backup");
        }
        let file = match &self.open {
            Some((name, file)) if name == part.file => file,
            Some((name, _)) => bail!("{name} has no end"),
            None => {
                let file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(self.folder.join(part.file))?;
                &self.open.insert((part.file.to_owned(), file)).1
            }
        };
        if part.bytes.is_empty() {
            file.set_len(part.offset)?;
            self.open = None;
            self.count += 1;
            return Ok(());
        }
        file.write_all_at(part.bytes, part.offset)?;
        self.bytes += part.bytes.len() as u64;
        Ok(())
    }

    /// All were sent.
    fn finish(self) -> Result<()> {
        match (self.open, self.count) {
            (None, 1..) => Ok(()),
            _ => bail!("the backup has no end"),
        }
    }
}

/// Makes a directory of what was received; its administrator's DN.
fn build(args: &Join, token: &Token, passing: &Path, administrator: &[u8]) -> Result<String> {
    let name = || passing.display().to_string();
    let (backup, data) = (passing.join(BACKUP), open::data_folder(passing));
    let count = fs::read_dir(&backup).with_context(name)?.count();
    let source = match count {
        1 => backup.join(FIRST_STORE),
        _ => backup.clone(),
    };
    sapwood_store::Restore::of(source)
        .into_folder(&data)
        .with_context(name)?;
    remove(&backup);
    let path = passing.join(CONFIG_FILE);
    fs::write(&path, Config::template("cn=admin")).with_context(name)?;
    let config = Config::load(passing)?;
    let engine = store(&data)?;
    let first = first_position(&engine, token.sid)?;
    renew_feed(&engine, &TimedUuids)?;
    let directory = Directory::open_on(engine, open::options(passing, &config)?)?;
    let snapshot = directory.snapshot()?;
    let bases: Vec<String> = snapshot.naming_contexts().map(str::to_owned).collect();
    let before = directory.ask_settings(|settings| settings.agreements.len())?;
    let admin_dn = args
        .admin_dn
        .clone()
        .unwrap_or_else(|| match bases.first() {
            Some(base) => format!("cn=admin,{base}"),
            None => "cn=admin".to_owned(),
        });
    fs::write(&path, Config::template(&admin_dn)).with_context(name)?;
    let config = Config::load(passing)?;
    StoredPassword::write(passing, &config, administrator)?.put_in_place()?;
    let year = jiff::Zoned::now().year();
    tls::create_self_signed(
        &passing.join(&config.tls.cert),
        &passing.join(&config.tls.key),
        year,
    )?;
    let rids = 1..=u16::try_from(bases.len())?;
    agree(args, token, &directory, &admin_dn, (bases, before))?;
    for rid in rids {
        begin_at(&directory, first(rid))?;
    }
    if let Some(sid) = args.sid {
        directory.become_replica(sid)?;
        drop(directory);
        super::set_sid(passing, sid)?;
    }
    Ok(admin_dn)
}

fn store(data: &Path) -> Result<Embedded> {
    let options = sapwood_store::Options::new().create(false);
    Embedded::open(data, &options).with_context(|| data.display().to_string())
}

/// Puts agreements with the provider in the place of those that it has itself.
fn agree(
    args: &Join,
    token: &Token,
    directory: &Directory,
    admin_dn: &str,
    (bases, before): (Vec<String>, usize),
) -> Result<()> {
    let folder = path::absolute(&args.folder)?;
    let password = folder.join(PASSWORD_FILE).into_os_string().into_string();
    let password = password.map_err(|name| anyhow!("{}: the name is not UTF-8", name.display()))?;
    let fingerprint = token.fingerprint.iter().map(|octet| format!("{octet:02x}"));
    let fingerprint: String = fingerprint.collect();
    let values = bases.into_iter().zip(1..).map(|(base, rid)| {
        Agreement {
            rid,
            provider: token.url.clone(),
            bind_dn: token.dn(),
            password: AgreementPassword::File(password.clone()),
            base,
            persists: true,
            start_tls: token.url.starts_with("ldap:"),
            fingerprint: Some(fingerprint.clone()),
            ..Agreement::default()
        }
        .to_string()
    });
    let values: Vec<String> = values.collect();
    // The last first, so that the others keep their places.
    let old: Vec<String> = (0..before).rev().map(|at| format!("{{{at}}}")).collect();
    let old = old.iter().map(|at| (ChangeKind::Delete, at.as_str()));
    let new = values.iter().map(|value| (ChangeKind::Add, value.as_str()));
    let changes: Vec<_> = old.chain(new).collect();
    change(directory, admin_dn, &changes).map_err(|why| anyhow!("{SYNCREPL}: {why}"))
}

/// Has an agreement go on from where the copy was made.
fn begin_at(directory: &Directory, position: AgreementPosition) -> Result<()> {
    let replicated = Replicated {
        position: Some(position),
        ..Replicated::default()
    };
    let update = Update {
        requester: Requester::replica("cn=replica"),
        request: UpdateRequest::Replicated(Box::new(replicated)),
    };
    let applied = directory.apply(&[update])?;
    if let Some(ticket) = applied.ticket {
        ticket.wait()?;
    }
    match applied.outcomes.first() {
        Some(outcome) if outcome.code == ResultCode::Success => Ok(()),
        Some(outcome) => bail!("the position: {}: {}", outcome.code, outcome.diagnostic),
        None => bail!("the position was not taken"),
    }
}
