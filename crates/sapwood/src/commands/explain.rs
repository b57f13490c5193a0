//! `sapwood explain`: how a search would find its entries, and which indexes would help it.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sapwood_directory::{Budget, Requester, Search, SearchOptions, Snapshot, Step, Wire};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter_text;
use sapwood_ldap::message::{Scope, SearchRequest};
use sapwood_server::Config;

use crate::cli::{Explain, SearchScope};
use crate::open;
use crate::output::Output;

/// Work of a step of planning, in about as many nanoseconds.
const STEP_WORK: u64 = 1 << 24;

pub(crate) fn run(args: &Explain, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let directory = open::directory(&args.folder, &config, true)?;
    let snapshot = directory.snapshot()?;
    let filter = filter_text::parse(&args.filter);
    let filter = filter.with_context(|| format!("--filter '{}'", args.filter))?;
    let bases = match &args.base {
        Some(base) => vec![base.clone()],
        None => snapshot.naming_contexts().map(str::to_owned).collect(),
    };
    let scope = match args.scope {
        SearchScope::Base => Scope::Base,
        SearchScope::One => Scope::OneLevel,
        SearchScope::Sub => Scope::Subtree,
        SearchScope::Children => Scope::Subordinates,
    };
    let mut missing = BTreeSet::new();
    for base in bases {
        let request = SearchRequest::new(&base, scope, filter.as_filter());
        let (plan, indexes) = plan(&snapshot, &config.admin.dn, &request)?;
        out.say(format_args!("{base}: {plan}"));
        missing.extend(indexes);
    }
    for spec in missing {
        out.say(format_args!(
            "no index: {spec} ('sapwood index {} add \"{spec}\"' makes it)",
            args.folder.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the candidates of a search come from, and the indexes that it misses.
fn plan(
    snapshot: &Snapshot,
    administrator: &str,
    request: &SearchRequest<'_>,
) -> Result<(String, BTreeSet<String>)> {
    let options = SearchOptions {
        manage_dsa_it: true,
        ..SearchOptions::default()
    };
    let requester = Requester::administrator(administrator);
    let mut search = Search::new(snapshot.clone(), &requester, request, options);
    let mut nothing = Vec::new();
    while !search.is_planned() {
        let budget = Budget {
            entries: 0,
            work: STEP_WORK,
            out_bytes: 0,
        };
        let mut wire = Wire::new(&mut nothing, 1, Controls::EMPTY);
        if let Step::Done(outcome) = search.step(&mut wire, budget)? {
            bail!("{}: {} {}", request.base, outcome.code, outcome.diagnostic);
        }
    }
    let plan = search.explain();
    if plan == "ended" {
        // It says why, such as that the base is not there.
        let mut wire = Wire::new(&mut nothing, 1, Controls::EMPTY);
        let budget = Budget {
            entries: 0,
            work: STEP_WORK,
            out_bytes: 0,
        };
        if let Step::Done(outcome) = search.step(&mut wire, budget)? {
            bail!("{}: {} {}", request.base, outcome.code, outcome.diagnostic);
        }
    }
    Ok((plan, search.missing_indexes()))
}
