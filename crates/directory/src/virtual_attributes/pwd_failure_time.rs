//! `pwdFailureTime`: when binds as the entry failed since the last one that succeeded, the last of them.

use super::{Subject, Values};
use crate::accounts::FAILURES_SHOWN_MAX;
use crate::engine::Read;
use crate::error::Result;
use crate::stamp::precise_time;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let failures = subject.account()?.failures;
    let first = failures.len().saturating_sub(FAILURES_SHOWN_MAX);
    for failure in failures.into_iter().skip(first) {
        values.push(&precise_time(failure));
    }
    Ok(())
}
