//! How far copies are behind: the provider is asked up to which changes it has all (`contextCSN`), and that is compared
//! with the cookie of the copy. It is asked when people ask, over a connection of its own: so the answer is of now, and
//! there is one as well while nothing can be copied.

use std::time::Duration;

use sapwood_client::Client;
use sapwood_directory::engine::Engine;
use sapwood_directory::{Agreement, Directory};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::csn::Csn;
use sapwood_ldap::dn::Dn;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Response, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_replication::{Cookie, Vector};
use tokio::time::timeout;

use super::link::connect;

/// Seconds that a provider may take to answer.
const ANSWER_SECONDS_MAX: u64 = 5;
/// The attribute that tells up to where a server has all changes, a value for each replica.
const CONTEXT_CSN: &str = "contextCSN";

/// How far a copy is behind its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lag {
    /// It has all that the provider had when it was asked.
    Nothing,
    /// It lacks changes.
    Behind {
        /// Those that made what it lacks, ascending.
        replicas: Vec<u16>,
        /// Between the last change that it has of one of them and the last that the provider has: the most of these
        /// times. A change after a quiet hour counts as an hour until it is here. `None` if the copy has nothing of one
        /// of them.
        time: Option<Duration>,
    },
    /// The provider has not told: why.
    Unknown(String),
}

impl Lag {
    /// Of a copy that has the changes of one vector, whose provider has those of another one.
    pub fn between(has: &Vector, provider: &Vector) -> Lag {
        let mut replicas = Vec::new();
        let mut micros = Some(0);
        for there in provider.iter().filter(|csn| !has.covers(*csn)) {
            let here = has.of(there.replica);
            replicas.push(there.replica);
            micros = micros
                .filter(|_| here != Csn::default())
                .map(|most: u64| most.max(there.micros - here.micros));
        }
        match replicas.is_empty() {
            true => Lag::Nothing,
            false => Lag::Behind {
                replicas,
                time: micros.map(Duration::from_micros),
            },
        }
    }
}

/// How far the copies of agreements are behind, in their order. All providers are asked at once, and waited for some
/// seconds.
pub fn lags<E: Engine>(directory: &Directory<E>, agreements: &[Agreement]) -> Vec<Lag> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return vec![Lag::Unknown(error.to_string()); agreements.len()],
    };
    let asked: Vec<_> = agreements
        .iter()
        .map(|agreement| runtime.spawn(ask_in_time(agreement.clone())))
        .collect();
    let lags = agreements.iter().zip(asked).map(|(agreement, asked)| {
        let told = runtime.block_on(asked);
        let told = told.unwrap_or_else(|error| Err(error.to_string()));
        // After the provider has told: what has come meanwhile is here.
        let lag = told.and_then(|provider| {
            let cookie = directory.newest_cookie(agreement.rid);
            let cookie = cookie.map_err(|error| format!("this directory: {error}"))?;
            let has = cookie.and_then(|cookie| Cookie::parse(&cookie).ok());
            let has = has.map(|cookie| cookie.vector).unwrap_or_default();
            Ok(Lag::between(&has, &provider))
        });
        lag.unwrap_or_else(Lag::Unknown)
    });
    let lags = lags.collect();
    // Names that are looked up still are not waited for.
    runtime.shutdown_background();
    lags
}

async fn ask_in_time(agreement: Agreement) -> Result<Vector, String> {
    let limit = Duration::from_secs(ANSWER_SECONDS_MAX);
    let asked = timeout(limit, ask(&agreement)).await;
    asked.unwrap_or_else(|_| {
        Err(format!(
            "{} has not answered within {ANSWER_SECONDS_MAX} s",
            agreement.provider
        ))
    })
}

/// Up to which change of each replica a provider has all.
async fn ask(agreement: &Agreement) -> Result<Vector, String> {
    let connection = connect(agreement).await.map_err(|why| why.to_string())?;
    let client = Client::over(connection);
    let vector = context_csns(&client, &agreement.base).await;
    client.unbind();
    match vector {
        Ok(vector) if vector.is_empty() => {
            Err(format!("{} does not show contextCSN", agreement.provider))
        }
        vector => vector,
    }
}

/// The same on a connection that there is, of the entry with a DN or above; nothing where none shows it.
pub(crate) async fn context_csns(client: &Client, base: &str) -> Result<Vector, String> {
    // Naming contexts have it, and a copy may begin below one.
    let mut at = Some(Dn::parse(base).map_err(|error| error.to_string())?);
    while let Some(dn) = at.filter(|dn| !dn.is_root()) {
        let vector = ask_at(client, dn.as_str()).await;
        let vector = vector.map_err(|error| error.to_string())?;
        if !vector.is_empty() {
            return Ok(vector);
        }
        at = dn.parent();
    }
    Ok(Vector::default())
}

async fn ask_at(client: &Client, dn: &str) -> Result<Vector, sapwood_client::Error> {
    let mut vector = Vector::default();
    // The text is one of a filter.
    let Ok(filter) = filter_text::parse("(objectClass=*)") else {
        return Ok(vector);
    };
    let attributes = OctetStringsBuf::from_iter([CONTEXT_CSN]);
    let search = SearchRequest {
        attributes: attributes.view(),
        ..SearchRequest::new(dn, Scope::Base, filter.as_filter())
    };
    let mut found = client.search(search, Controls::EMPTY)?;
    loop {
        let reply = match found.next().await {
            Ok(Some(reply)) => reply,
            Ok(None) => return Ok(vector),
            // What is above a copy need not be shown, nor be there.
            Err(error) if error.code() == Some(ResultCode::NoSuchObject) => return Ok(vector),
            Err(error) => return Err(error),
        };
        let message = reply.message()?;
        let Response::SearchEntry(entry) = &message.op else {
            continue;
        };
        let of_context = entry.attributes.iter().filter(|attribute| {
            attribute
                .description
                .eq_ignore_ascii_case(CONTEXT_CSN.as_bytes())
        });
        let csns = of_context
            .flat_map(|attribute| attribute.values)
            .filter_map(|value| Csn::parse(std::str::from_utf8(value).ok()?));
        csns.for_each(|csn| vector.advance(csn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csn(micros: u64, replica: u16) -> Csn {
        Csn {
            micros,
            count: 0,
            replica,
        }
    }

    #[test]
    fn a_copy_is_behind_by_the_longest_time_of_all_replicas() {
        let has: Vector = [csn(5, 1), csn(10, 2), csn(7, 3)].into_iter().collect();
        let same = Lag::between(&has, &has);
        assert_eq!(same, Lag::Nothing);
        let older: Vector = [csn(4, 1)].into_iter().collect();
        assert_eq!(Lag::between(&has, &older), Lag::Nothing);
        let newer: Vector = [csn(25, 1), csn(11, 2), csn(7, 3)].into_iter().collect();
        let behind = Lag::Behind {
            replicas: vec![1, 2],
            time: Some(Duration::from_micros(20)),
        };
        assert_eq!(Lag::between(&has, &newer), behind);
        // Nothing is known of when it began.
        let other: Vector = [csn(25, 1), csn(1, 4)].into_iter().collect();
        let behind = Lag::Behind {
            replicas: vec![1, 4],
            time: None,
        };
        assert_eq!(Lag::between(&has, &other), behind);
    }
}
