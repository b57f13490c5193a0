//! What a running server takes over from a configuration that it reads again, and what it can only be started with.

use std::fmt;

use toml::Table;

use super::{Config, Log};

/// What reading the configuration again has come to, each setting as `key = value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Settings that have changed, and are in force from now on.
    pub in_force: Vec<String>,
    /// What differs from that which the server was started with, and waits for it to be started again.
    pub at_restart: Vec<String>,
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_force.as_slice() {
            [] => f.write_str("no other setting is in force than before")?,
            changed => write!(f, "in force now: {}", changed.join(", "))?,
        }
        match self.at_restart.as_slice() {
            [] => Ok(()),
            waiting => write!(f, "; needs a restart: {}", waiting.join(", ")),
        }
    }
}

impl Config {
    /// Of a configuration that was read again, what can take effect in a server that was started with `started`.
    pub(crate) fn running_since(&self, started: &Config) -> Config {
        let mut running = self.clone();
        running.listen.clone_from(&started.listen);
        running.server_id.clone_from(&started.server_id);
        running.threads = started.threads;
        running.schema.clone_from(&started.schema);
        running.replication = started.replication;
        running.memory = started.memory;
        running.archive.clone_from(&started.archive);
        // The root DSE was made with it.
        running.gssapi.clone_from(&started.gssapi);
        running.log = Log {
            access: self.log.access,
            audit_values: self.log.audit_values,
            ..started.log.clone()
        };
        // Sizes of what connections share, and numbers of threads.
        let (limits, fixed) = (&mut running.limits, &started.limits);
        limits.answers_bytes_max = fixed.answers_bytes_max;
        limits.input_bytes_max = fixed.input_bytes_max;
        limits.update_queue_bytes_max = fixed.update_queue_bytes_max;
        limits.open_transactions_bytes_max = fixed.open_transactions_bytes_max;
        limits.hashers_max = fixed.hashers_max;
        limits.saslauthd_max = fixed.saslauthd_max;
        limits.saslauthd_seconds_max = fixed.saslauthd_seconds_max;
        // The directory was opened with them.
        let saslauthd = &started.passwords.saslauthd;
        running.passwords.saslauthd.clone_from(saslauthd);
        limits.password_values_max = fixed.password_values_max;
        limits.password_cost_ms_max = fixed.password_cost_ms_max;
        running
    }
}

impl Reloaded {
    /// From what was in force until now to what is `running` now, where `wanted` was asked for.
    pub(crate) fn new(before: &Config, running: &Config, wanted: &Config) -> Self {
        Self {
            in_force: differences(before, running),
            at_restart: differences(running, wanted),
        }
    }
}

/// The settings in which two configurations differ, as the second one has them.
fn differences(one: &Config, other: &Config) -> Vec<String> {
    // Everything in a configuration has a form in TOML: it was read from there.
    let [one, other] = [one, other].map(|config| Table::try_from(config).unwrap_or_default());
    let mut found = Vec::new();
    for (name, value) in &other {
        match (one.get(name), value) {
            (Some(toml::Value::Table(before)), toml::Value::Table(now)) => {
                let changed = now
                    .iter()
                    .filter(|(key, value)| before.get(*key) != Some(value));
                found.extend(changed.map(|(key, value)| format!("{name}.{key} = {value}")));
            }
            (before, now) if before != Some(now) => found.push(format!("{name} = {now}")),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse(text).unwrap_or_else(|(line, reason)| panic!("{line}: {reason}\n{text}"))
    }

    /// Another value than this one that makes sense.
    fn another(value: &toml::Value) -> toml::Value {
        match value {
            toml::Value::Boolean(value) => (!value).into(),
            toml::Value::Integer(value) => (value + 1).into(),
            toml::Value::Array(_) => vec!["ldapi://%2Fsocket"].into(),
            toml::Value::String(level) if level == "info" => "debug".into(),
            toml::Value::String(full) if full == "drop" => "wait".into(),
            toml::Value::String(asked) if asked == "never" => "try".into(),
            toml::Value::String(oldest) if oldest == "1.2" => "1.3".into(),
            _ => "another".into(),
        }
    }

    /// A comment of the template that says `restart` or `reload` holds for the keys below it, up to the next one that
    /// does.
    #[test]
    fn the_template_says_of_every_setting_what_it_needs() {
        let template = Config::template("cn=admin");
        let mut all: Table = template.parse().unwrap();
        // Only of a replica every setting makes sense.
        all["replication"]["sid"] = 1.into();
        let started = parse(&all.to_string());
        let (mut section, mut needs_restart, mut seen) = (None, None, 0);
        for line in template.lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = Some(name.trim_end_matches(']'));
                needs_restart = None;
            }
            if line.starts_with('#') {
                for (mark, needs) in [("(reload)", false), ("(restart)", true)] {
                    if line.contains(mark) {
                        needs_restart = Some(needs);
                    }
                }
            } else if let Some((key, _)) = line.split_once(" = ") {
                let mut changed = all.clone();
                let table = match section {
                    Some(section) => changed[section].as_table_mut().unwrap(),
                    None => &mut changed,
                };
                table[key] = another(&table[key]);
                let wanted = parse(&changed.to_string());
                let running = wanted.running_since(&started);
                let told = Reloaded::new(&started, &running, &wanted);
                let (here, elsewhere) = match needs_restart.expect(key) {
                    true => (&told.at_restart, &told.in_force),
                    false => (&told.in_force, &told.at_restart),
                };
                assert!(
                    here.len() == 1 && here[0].contains(key) && elsewhere.is_empty(),
                    "{key}: {told:?}"
                );
                seen += 1;
            }
        }
        let keys = all
            .values()
            .map(|value| value.as_table().map_or(1, Table::len));
        assert_eq!(seen, keys.sum::<usize>());
    }
}
