//! Reads what is stored for password policies as binds and changes of passwords do: for the fuzzer.

use super::{Account, PasswordPolicy, history};
use crate::accounts::AccountState;
use crate::schema::{OperationalAttribute, Schema};

/// What an account is made of, in the order of the lines that are read.
const ACCOUNT: [OperationalAttribute; 8] = [
    OperationalAttribute::PwdChangedTime,
    OperationalAttribute::PwdAccountLockedTime,
    OperationalAttribute::PwdGraceUseTime,
    OperationalAttribute::PwdReset,
    OperationalAttribute::PwdStartTime,
    OperationalAttribute::PwdEndTime,
    OperationalAttribute::PwdPolicySubentry,
    OperationalAttribute::PwdHistory,
];

/// What a policy says, in the order of the lines that are read.
const POLICY: [&str; 20] = [
    "pwdMinAge",
    "pwdMaxAge",
    "pwdInHistory",
    "pwdCheckQuality",
    "pwdMinLength",
    "pwdMaxLength",
    "pwdExpireWarning",
    "pwdGraceAuthNLimit",
    "pwdGraceExpiry",
    "pwdLockoutDuration",
    "pwdMaxFailure",
    "pwdMaxRecordedFailure",
    "pwdFailureCountInterval",
    "pwdMinDelay",
    "pwdMaxDelay",
    "pwdMaxIdle",
    "pwdLockout",
    "pwdMustChange",
    "pwdAllowUserChange",
    "pwdSafeModify",
];

/// Judges binds and a change by values that may be any bytes. The first eight are the time; then there are lines, each
/// of which begins with the number of the attribute whose value it is: of the account, of the policy, and one for the
/// record of its binds.
///
/// # Panics
/// Where what was read is not what was written.
pub fn read_values(schema: &Schema, bytes: &[u8]) {
    let Some((time, lines)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let micros = u64::from_le_bytes(*time);
    let (mut account, mut state) = (Account::default(), AccountState::default());
    let mut policy = PasswordPolicy::default();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some((number, value)) = line.split_first() else {
            continue;
        };
        let number = usize::from(*number);
        if let Some(attribute) = ACCOUNT.get(number) {
            account.take(schema, *attribute, value);
        } else if let Some(attribute) = POLICY.get(number - ACCOUNT.len()) {
            policy.set(attribute, &String::from_utf8_lossy(value));
        } else if let Some(read) = AccountState::from_value(value) {
            assert_eq!(read.to_value(), value);
            state = read;
        }
    }
    policy.complete();
    judge(&policy, &account, state, micros);
    let used = history::value("20250102030405Z", "1.2", lines);
    assert_eq!(
        history::parse(&used),
        Some((&b"20250102030405Z"[..], lines))
    );
    let kept = history::with(&account.history, Some(used), policy.in_history);
    assert!(kept.len() as u64 <= policy.in_history.min(history::HISTORY_MAX));
}

/// A bind that fails, and one that succeeds.
fn judge(policy: &PasswordPolicy, account: &Account, mut state: AccountState, micros: u64) {
    let _ = policy.is_locked(account, &state, micros);
    let before = state.failures.len();
    let _ = policy.fail(&mut state, micros);
    let most = policy.max_recorded_failure.max(before as u64);
    assert!(state.failures.len() as u64 <= most);
    let again = AccountState::from_value(&state.to_value());
    assert_eq!(
        again.map(|again| again.failures),
        Some(state.failures.clone())
    );
    let _ = policy.is_locked(account, &state, micros);
    let verdict = policy.succeed(account, &mut state, micros);
    assert!(!verdict.is_refused || verdict.response.error.is_some());
    assert!(state.failures.is_empty());
    let _ = policy.check_age(account, micros / 1_000_000);
    let _ = policy.check_quality(&account.history.concat(), false);
}
