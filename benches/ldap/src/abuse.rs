//! What an honest client notices of somebody who wants to stop the server: its requests' times before, during and after
//! each attack, how many were refused, and the server's memory.
//!
//! The honest client sends at fixed times, whatever the answers do, and each time is counted from when the request was
//! due. The attackers are processes of their own with the lowest priority, from other addresses of this machine unless
//! they are to share the honest client's.

mod attacks;
mod honest;

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sapwood_drive::{EntryStream, Format, ServerUse};

use self::attacks::{ATTACKS, Attack};
pub(crate) use self::attacks::{Options as AttackOptions, run as attack};
use self::honest::{Honest, Times};
use crate::process::bound;
use crate::server::{ADMIN_DN, Indexes, Product, Server};
use crate::{Folder, SUFFIX};

/// Entries beside those that attacks are about.
const ENTRIES: u64 = 10_000;
/// The password of all users.
const PASSWORD: &str = "benchmark";
/// The password policy, where one governs.
const POLICY: &str = "cn=policy,dc=example,dc=com";
/// The honest client's time that 99 of 100 requests are answered in: so many times what they take without an attack, or
/// [`P99_MAX`] if that is more.
const P99_RATIO_MAX: u32 = 3;
const P99_MAX: Duration = Duration::from_millis(25);
/// What the server's own memory may grow by: all that its limits let connections share (58 MiB), what is copied while
/// an update of a large entry is applied and logged, one password that is checked (19 MiB), and 64 KiB for each of a
/// thousand connections.
const MEMORY_GROWTH_MAX: u64 = 160 << 20;
/// What it may keep of that when the attackers have left, as free memory of its allocator.
const MEMORY_KEPT_MAX: u64 = 32 << 20;
/// In so long it is given back.
const GIVEN_BACK: Duration = Duration::from_secs(30);
/// How long the honest client is watched before and after.
const QUIET: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of each attack, 0 for none
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Seconds of all attacks at once, 0 for none [default: ten times --seconds, and none with --attack]
    #[arg(long)]
    mixed_seconds: Option<u64>,
    /// Only this attack; may be given several times
    #[arg(long = "attack", value_name = "NAME", value_parser = attacks::names())]
    attacks: Vec<String>,
    /// The attackers come from the honest client's address
    #[arg(long)]
    same_address: bool,
    /// Under the access rules of this file, such as benches/ldap/access/abuse.rules, and under a password policy
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Members of the large group
    #[arg(long, default_value_t = 650_000)]
    members: u64,
    /// The sapwood program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    sapwood: Option<PathBuf>,
    /// Where data goes: on the disk whose durability counts; a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = Folder::create(&options.folder)?;
    let ldif = folder.path.join("entries.ldif");
    write_entries(&ldif, options.members)?;
    let prepared =
        Product::Sapwood.prepare_with(&folder.path, Indexes::Usual, options.sapwood.as_deref())?;
    let (mut prepared, _) = prepared.import(&ldif)?;
    if let Some(rules) = &options.rules {
        prepared = prepared.under(rules)?.governed_by(POLICY)?;
    }
    let (server, ldaps) = prepared.start_with_tls()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let honest = Honest {
        ldap: server.url.clone(),
        ldaps,
        certificate: server.folder().join("tls-cert.pem"),
        changes: match options.rules {
            Some(_) => honest::Changed::Description,
            None => honest::Changed::Password,
        },
    };
    println!("{} requests a second beside attacks\n", honest::RATE);
    println!(
        "| attack | | p50 ms | p99 ms | max ms | p99 at most | refused | memory MiB | at most | kept | at most | |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    );
    let wanted = |attack: &&Attack| {
        options.attacks.is_empty() || options.attacks.iter().any(|name| name == attack.name)
    };
    let mut runs: Vec<(&str, Vec<&Attack>, u64)> = ATTACKS
        .iter()
        .filter(|attack| options.seconds > 0 && wanted(attack))
        .map(|attack| (attack.name, vec![attack], options.seconds))
        .collect();
    let mixed = options
        .mixed_seconds
        .unwrap_or(if options.attacks.is_empty() {
            10 * options.seconds
        } else {
            0
        });
    if mixed > 0 {
        runs.push(("all mixed", ATTACKS.iter().filter(wanted).collect(), mixed));
    }
    let mut missed = Vec::new();
    for (name, attacks, seconds) in runs {
        let outcome = measure(&attacks, seconds, options, &server, &honest, &runtime)
            .with_context(|| name.to_owned())?;
        outcome.print(name);
        std::io::stdout().flush()?;
        if !outcome.is_met() {
            missed.push(name);
        }
    }
    server.stop()?;
    ensure!(missed.is_empty(), "bounds missed: {}", missed.join(", "));
    Ok(())
}

/// The generated entries, and behind them the policy, the users and the group that attacks are about.
fn write_entries(path: &Path, members: u64) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    EntryStream::flat(SUFFIX, ENTRIES, 1)?.write(Format::Ldif, &mut out)?;
    let users = [
        ("honest", honest::STORED),
        ("slow", PASSWORD),
        ("mallory", PASSWORD),
        ("target", PASSWORD),
        ("hashes", PASSWORD),
    ];
    let users = users.map(|(user, password)| (user.to_owned(), password));
    let victims = (0..attacks::VICTIMS).map(|number| (attacks::victim(number), honest::STORED));
    for (user, password) in users.into_iter().chain(victims) {
        write!(
            out,
            "\ndn: cn={user},{SUFFIX}\nobjectClass: person\ncn: {user}\nsn: {user}\nuserPassword: {password}\n"
        )?;
    }
    write!(
        out,
        "\ndn: {POLICY}\nobjectClass: device\nobjectClass: pwdPolicy\ncn: policy\npwdAttribute: userPassword\n\
         pwdLockout: TRUE\npwdMaxFailure: 5\npwdLockoutDuration: 1\npwdCheckQuality: 1\npwdMinLength: 8\n\
         pwdInHistory: 5\n"
    )?;
    write!(
        out,
        "\ndn: {},{SUFFIX}\nobjectClass: groupOfNames\n",
        attacks::GROUP
    )?;
    for number in 0..members {
        writeln!(out, "member: cn=member{number:07},{SUFFIX}")?;
    }
    Ok(out.flush()?)
}

/// What became of the honest client and of the server.
struct Outcome {
    before: Times,
    during: Times,
    after: Times,
    memory_before: u64,
    memory_peak: u64,
    memory_after: u64,
}

impl Outcome {
    fn p99_max(&self) -> Duration {
        (self.before.p99() * P99_RATIO_MAX).max(P99_MAX)
    }

    fn memory_max(&self) -> u64 {
        self.memory_before + MEMORY_GROWTH_MAX
    }

    fn kept_max(&self) -> u64 {
        self.memory_before + MEMORY_KEPT_MAX
    }

    fn is_met(&self) -> bool {
        self.during.p99() <= self.p99_max()
            && self.during.refused == 0
            && self.after.refused == 0
            && self.memory_peak <= self.memory_max()
            && self.memory_after <= self.kept_max()
    }

    fn print(&self, name: &str) {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (before, after) = (&self.before, &self.after);
        for (phase, times) in [
            ("before", before),
            ("during", &self.during),
            ("after", after),
        ] {
            let (p50, p99, max) = (ms(times.p50()), ms(times.p99()), ms(times.max()));
            let refused = times.refused;
            print!("| {name} | {phase} | {p50:.2} | {p99:.2} | {max:.1} | ");
            match phase {
                "before" => println!("| {refused} | {:.1} | | | | |", mib(self.memory_before)),
                "during" => println!(
                    "{:.1} | {refused} | {:.1} | {:.1} | | | {} |",
                    ms(self.p99_max()),
                    mib(self.memory_peak),
                    mib(self.memory_max()),
                    if self.is_met() { "met" } else { "**missed**" }
                ),
                _ => println!(
                    "| {refused} | | | {:.1} | {:.1} | |",
                    mib(self.memory_after),
                    mib(self.kept_max())
                ),
            }
        }
        let more = self.during.reasons().chain(self.during.kinds());
        more.for_each(|line| eprintln!("{name}: {line}"));
    }
}

fn measure(
    attacks: &[&Attack],
    seconds: u64,
    options: &Options,
    server: &Server,
    honest: &Honest,
    runtime: &tokio::runtime::Runtime,
) -> Result<Outcome> {
    let memory = || {
        let used = ServerUse::read(server.pid()).context("the server has ended")?;
        anyhow::Ok(used.memory_bytes)
    };
    let before = runtime.block_on(honest.run(QUIET))?;
    let memory_before = memory()?;
    let mut attackers = Attackers::default();
    for (number, attack) in attacks.iter().enumerate() {
        let last = u8::try_from(number + 2)?;
        let address = match options.same_address {
            true => Ipv4Addr::LOCALHOST,
            false => Ipv4Addr::new(127, 0, 0, last),
        };
        attackers.start(attack, address, server, honest)?;
    }
    server.watch_memory();
    let during = runtime.block_on(honest.run(Duration::from_secs(seconds)))?;
    let memory_peak = server.memory_peak();
    attackers.check()?;
    drop(attackers);
    let after = runtime.block_on(honest.run(QUIET))?;
    let left = Instant::now();
    while memory()? > memory_before + MEMORY_KEPT_MAX && left.elapsed() < GIVEN_BACK {
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(Outcome {
        before,
        during,
        after,
        memory_before,
        memory_peak,
        memory_after: memory()?,
    })
}

/// Processes that attack; they are killed when dropped.
#[derive(Default)]
struct Attackers(Vec<(&'static str, Child)>);

impl Attackers {
    fn start(
        &mut self,
        attack: &Attack,
        address: Ipv4Addr,
        server: &Server,
        honest: &Honest,
    ) -> Result<()> {
        let child = bound(std::env::current_exe()?)?
            .args(["attack", attack.name])
            .args(["--ldap", &server.url, "--ldaps", &honest.ldaps])
            .args(["--from", &address.to_string(), "--admin-dn", ADMIN_DN])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting an attacker")?;
        self.0.push((attack.name, child));
        Ok(())
    }

    /// Fails if one has given up: nothing was measured beside it then.
    fn check(&mut self) -> Result<()> {
        for (name, child) in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                anyhow::bail!("{name}: the attacker has ended: {status}");
            }
        }
        Ok(())
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // One that has ended by itself is as good as killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
