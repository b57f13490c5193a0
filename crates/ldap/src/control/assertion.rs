//! Assertion (RFC 4528).

use crate::error::PartError;
use crate::filter::Filter;

/// The filter that the target entry must match, from the control's value. To write one, the value is the filter's BER.
pub fn assertion_filter(value: &[u8]) -> Result<Filter<'_>, PartError> {
    Filter::from_ber(value)
}
