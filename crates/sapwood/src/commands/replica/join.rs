//! `sapwood replica join`: makes a directory that has what another one has: a read-only copy of it, or one that takes
//! updates as well.
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
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use sapwood_directory::engine::Embedded;
use sapwood_directory::{
    Agreement, AgreementPosition, Directory, Replicated, Requester, Ticket as _, TimedUuids,
    Update, UpdateRequest, first_position, renew_feed,
};
use sapwood_ldap::extended::{BackupPart, SEND_BACKUP};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{Response, ResponseMessage};
use sapwood_ldap::result::ResultCode;
use sapwood_replication::Resolution;
use sapwood_server::config::CONFIG_FILE;
use sapwood_server::invitations::Token;
use sapwood_server::{Config, tls};
use tokio::time::timeout;

use super::agreements::{SYNCREPL, change};
use super::redeem::{self, Account, ask, redeem, succeeded};
use crate::cli::FIRST_STORE;
use crate::cli::replica::Join;
use crate::commands::passwd::{self, StoredPassword};
use crate::open;
use crate::output::Output;
use crate::passing::{refuse_existing, remove};
use crate::progress::Progress;

/// The file of the account's password.
const PASSWORD_FILE: &str = "replica-password";
/// The folder of what is received.
const BACKUP: &str = "backup";
/// Seconds that the provider may be silent: it sends nothing while it makes its backup.
const SILENCE_SECONDS_MAX: u64 = 3600;

pub(super) fn run(args: &Join, out: &mut Output) -> Result<()> {
    if !args.read_only && args.sid.is_none() {
        bail!(
            "what is updated here needs a number of this server's own: say --sid N, or --read-only"
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
    let account = Account::kept(&passing.join(PASSWORD_FILE), &token)?;
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
    let url = &token.url;
    match args.read_only {
        true => out.say(format_args!(
            "{folder} is a copy of {url}, read-only, and follows it while it is served."
        )),
        false => out.say(format_args!(
            "{folder} has what {url} has, and takes updates and those of {url} while it is served. Have that one take \
             those of this server: with a token of 'sapwood replica invite {folder}', run 'sapwood replica add DIR \
             --token TOKEN --rid N --multi-provider' there."
        )),
    }
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

/// Gets the account, if it is not there yet, and all data.
async fn receive(
    token: &Token,
    account: &Account,
    backup: &Path,
    progress: &mut Progress,
) -> Result<()> {
    let mut connection = redeem(token, account).await?;
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
    let agreements = directory.ask_settings(|settings| settings.agreements.clone())?;
    // All servers that take updates go by the same rules.
    let resolution = match (
        args.resolution,
        agreements.iter().find(|one| one.multi_provider),
    ) {
        (Some(resolution), _) => resolution.into(),
        (None, Some(one)) => one.resolution,
        (None, None) => Resolution::Entry,
    };
    let before = agreements.len();
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
    agree(
        args,
        token,
        &directory,
        (&admin_dn, resolution),
        (bases, before),
    )?;
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
    (admin_dn, resolution): (&str, Resolution),
    (bases, before): (Vec<String>, usize),
) -> Result<()> {
    let password = args.folder.join(PASSWORD_FILE);
    let mut agreement = redeem::agreement(token, &password)?;
    if !args.read_only {
        agreement.multi_provider = true;
        agreement.resolution = resolution;
    }
    let values = bases.into_iter().zip(1..).map(|(base, rid)| {
        let agreement = Agreement {
            rid,
            base,
            ..agreement.clone()
        };
        agreement.to_string()
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
