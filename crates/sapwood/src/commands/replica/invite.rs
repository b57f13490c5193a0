//! `sapwood replica invite`: lets another server join as a copy.

use anyhow::{Context, Result, anyhow, bail};
use sapwood_client::Trust;
use sapwood_server::invitations::{self, Token};
use sapwood_server::listen::ListenUrl;
use sapwood_server::{Config, tls};

use crate::cli::replica::Invite;
use crate::output::{Output, note};

pub(super) fn run(args: &Invite, out: &mut Output) -> Result<()> {
    let folder = &args.folder;
    let mut config = Config::load(folder)?;
    if config.replication.sid == 0 {
        super::become_replica(folder, args.sid)?;
        note(format_args!(
            "{} is replica {} from now on: start its server.",
            folder.display(),
            args.sid
        ));
        config = Config::load(folder)?;
    }
    let url = match &args.url {
        Some(url) => url.clone(),
        None => url_of(&config)?,
    };
    let fingerprint = tls::fingerprint_of_file(&folder.join(&config.tls.cert))?;
    let Trust::Fingerprint(fingerprint) = Trust::fingerprint(&fingerprint)? else {
        bail!("{fingerprint} is no fingerprint");
    };
    let mut token = Token {
        url,
        fingerprint,
        sid: config.replication.sid,
        name: "0".repeat(16),
        secret: [0; 32],
    };
    // Before anything is made.
    token.to_string().parse::<Token>().map_err(|_| {
        anyhow!(
            "--url {}: this is no ldap://HOST:PORT or ldaps://HOST:PORT",
            token.url
        )
    })?;
    let invitation = invitations::invite(folder).with_context(|| folder.display().to_string())?;
    (token.name, token.secret) = (invitation.name, invitation.secret);
    out.say(token.to_string());
    Ok(())
}

/// Where others reach a server, if its configuration tells.
fn url_of(config: &Config) -> Result<String> {
    let urls = || config.listen.iter().map(|listener| &listener.url);
    let protected = urls().find(|url| matches!(url, ListenUrl::Ldaps(..)));
    let plain = urls().find(|url| matches!(url, ListenUrl::Ldap(..)));
    let named = |host: &str| {
        let is_any = ["0.0.0.0", "::", ""].contains(&host);
        match is_any {
            true => rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            false if host.contains(':') => format!("[{host}]"),
            false => host.to_owned(),
        }
    };
    match protected.or(plain) {
        Some(ListenUrl::Ldaps(host, port)) => Ok(format!("ldaps://{}:{port}", named(host))),
        Some(ListenUrl::Ldap(host, port)) => Ok(format!("ldap://{}:{port}", named(host))),
        _ => bail!("say by --url where the other server reaches this one"),
    }
}
