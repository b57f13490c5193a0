//! Debian's slapd, unmodified, whose LMDB backend finds our library before its own.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{Bench, DONE, Library, Steps, Verdict, check_format, compare, output, text};

const SUFFIX: &str = "dc=example,dc=org";
const PEOPLE: u32 = 1000;

/// How often slapd is asked whether it is there, and how long between.
const ATTEMPTS_MAX: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

const SEARCHES: [&str; 5] = [
    "(objectClass=*)",
    "(sn=name3)",
    "(cn=*son 99*)",
    "(&(sn=name5)(!(uid=person5)))",
    "(|(uid=renamed7)(uid=person4)(description=new))",
];

pub(super) fn judge(bench: &Bench, verdicts: &mut Vec<Verdict>) -> Result<()> {
    let original = Directory::new(bench, Library::Original)?.walk();
    let ours = Directory::new(bench, Library::Ours)?.walk();
    for ((step, original), (_, ours)) in original.into_iter().zip(ours) {
        let original = original.context("with the original library")?;
        let verdict = ours.and_then(|ours| compare(&original, &ours));
        verdicts.push(Verdict::of(format!("slapd: {step}"), verdict));
    }
    Ok(())
}

struct Directory {
    folder: PathBuf,
    library: Library,
    preload: PathBuf,
}

impl Directory {
    fn new(bench: &Bench, library: Library) -> Result<Self> {
        let directory = Self {
            folder: bench.scratch("slapd", library)?,
            library,
            preload: bench.library(),
        };
        fs::create_dir(directory.data())?;
        fs::write(directory.configuration(), directory.configuration_text())?;
        fs::write(directory.folder.join("people.ldif"), people())?;
        fs::write(directory.folder.join("changes.ldif"), changes())?;
        Ok(directory)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join("slapd.conf")
    }

    fn configuration_text(&self) -> String {
        let folder = self.folder.display();
        format!(
            "include /etc/ldap/schema/core.schema\n\
             include /etc/ldap/schema/cosine.schema\n\
             include /etc/ldap/schema/inetorgperson.schema\n\
             modulepath /usr/lib/ldap\n\
             moduleload back_mdb\n\
             pidfile {folder}/slapd.pid\n\
             argsfile {folder}/slapd.args\n\
             database mdb\n\
             suffix {SUFFIX}\n\
             rootdn cn=admin,{SUFFIX}\n\
             rootpw secret\n\
             directory {folder}/data\n\
             maxsize 268435456\n\
             sizelimit unlimited\n\
             index objectClass eq\n\
             index cn,sn,uid pres,eq,sub\n"
        )
    }

    fn walk(&self) -> Steps {
        let mut steps = Steps::new();
        let people = self.folder.join("people.ldif");
        steps.push((
            "slapadd",
            self.tool("slapadd", &["-l".as_ref(), people.as_os_str()]),
        ));
        steps.push(("slapcat after slapadd", self.content()));
        match self.serve() {
            Ok(served) => steps.extend(served),
            Err(error) => steps.push(("slapd", Err(error))),
        }
        steps.push(("slapcat after changes", self.content()));
        steps.push(("slapindex", self.tool("slapindex", &[])));
        steps.push(("slapcat after slapindex", self.content()));
        steps
    }

    fn tool(&self, name: &str, args: &[&std::ffi::OsStr]) -> Result<String> {
        text(Path::new("/usr/sbin").join(name), |command| {
            command.arg("-f").arg(self.configuration()).args(args);
            self.choose(command);
        })?;
        check_format(&self.data(), self.library)?;
        Ok(DONE.into())
    }

    fn choose(&self, command: &mut Command) {
        if self.library == Library::Ours {
            command.env("LD_PRELOAD", &self.preload);
        }
    }

    /// All entries, without what differs from one run to the next.
    fn content(&self) -> Result<String> {
        let text = text("/usr/sbin/slapcat", |command| {
            command.arg("-f").arg(self.configuration());
            self.choose(command);
        })?;
        let differs = [
            "entryUUID:",
            "entryCSN:",
            "createTimestamp:",
            "modifyTimestamp:",
            "contextCSN:",
        ];
        let lines = text
            .lines()
            .filter(|line| !differs.iter().any(|name| line.starts_with(name)));
        Ok(lines.flat_map(|line| [line, "\n"]).collect())
    }

    fn serve(&self) -> Result<Steps> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let url = format!("ldap://127.0.0.1:{port}");
        let log = File::create(self.folder.join("slapd.log"))?;
        let mut command = Command::new("/usr/sbin/slapd");
        command
            .args(["-d", "0", "-h", &url, "-f"])
            .arg(self.configuration());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.choose(&mut command);
        let mut server = Server(command.spawn()?);
        server.wait_until_it_answers(&url)?;
        let maps = fs::read_to_string(format!("/proc/{}/maps", server.0.id()))?;
        ensure!(
            maps.contains(&self.preload.display().to_string()) == (self.library == Library::Ours),
            "slapd does not run on the library under test"
        );

        let mut steps = Steps::new();
        let changes = self.folder.join("changes.ldif");
        steps.push(("ldapsearch", search(&url)));
        steps.push(("ldapmodify", modify(&url, &changes)));
        steps.push(("ldapsearch after changes", search(&url)));
        steps.push((
            "slapd ends by itself when told to",
            server.stop().map(|()| DONE.into()),
        ));
        Ok(steps)
    }
}

fn search(url: &str) -> Result<String> {
    let mut answers = String::new();
    for filter in SEARCHES {
        let answer = text("ldapsearch", |command| {
            command.args(["-x", "-LLL", "-H", url, "-b", SUFFIX, filter]);
        })?;
        // slapd gives entries in the order of their ids, but promises none.
        let mut entries: Vec<&str> = answer.split("\n\n").collect();
        entries.sort_unstable();
        answers.push_str(&entries.join("\n\n"));
    }
    Ok(answers)
}

fn modify(url: &str, changes: &Path) -> Result<String> {
    text("ldapmodify", |command| {
        command
            .args(["-x", "-H", url, "-w", "secret", "-D"])
            .arg(format!("cn=admin,{SUFFIX}"));
        command.arg("-f").arg(changes);
    })
}

/// Killed if it is dropped before it has ended.
struct Server(Child);

impl Server {
    fn wait_until_it_answers(&mut self, url: &str) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(status) = self.0.try_wait()? {
                bail!("slapd ended by itself: {status}");
            }
            let asked = output("ldapsearch", |command| {
                command.args(["-x", "-H", url, "-b", "", "-s", "base"]);
            })?;
            if asked.status.success() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        bail!("slapd does not answer")
    }

    fn stop(mut self) -> Result<()> {
        text("kill", |command| {
            command.args(["-TERM", &self.0.id().to_string()]);
        })?;
        let status = self.0.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn people() -> String {
    let mut ldif = format!(
        "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
         dn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people\n\n"
    );
    for n in 0..PEOPLE {
        // Writing to a string does not fail.
        let _ = write!(
            ldif,
            "dn: uid=person{n},ou=people,{SUFFIX}\nobjectClass: inetOrgPerson\nuid: person{n}\n\
             cn: Person {n}\nsn: Name{}\nmail: person{n}@example.org\n\n",
            n % 37
        );
    }
    ldif
}

/// Changes of every kind.
fn changes() -> String {
    let mut ldif = String::new();
    for n in 0..PEOPLE / 4 {
        let change = match n % 4 {
            0 => "changetype: modify\nreplace: sn\nsn: Changed\n-\nadd: description\ndescription: new\n".into(),
            1 => "changetype: delete\n".to_owned(),
            2 => format!("changetype: modify\nadd: mail\nmail: other{n}@example.org\n-\ndelete: cn\n-\nadd: cn\ncn: Other {n}\n"),
            _ => format!("changetype: modrdn\nnewrdn: uid=renamed{n}\ndeleteoldrdn: 1\n"),
        };
        let _ = write!(ldif, "dn: uid=person{n},ou=people,{SUFFIX}\n{change}\n");
    }
    let _ = write!(
        ldif,
        "dn: uid=added,ou=people,{SUFFIX}\nchangetype: add\nobjectClass: inetOrgPerson\nuid: added\n\
         cn: Added\nsn: New\ndescription: {}\n\n",
        "long ".repeat(4000).trim_end()
    );
    ldif
}
