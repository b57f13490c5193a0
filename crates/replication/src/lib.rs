//! How far a replica is: a [`Vector`] of change sequence numbers, and the [`Cookie`] by which a consumer tells it.

mod cookie;
mod vector;

pub use cookie::{COOKIE_BYTES_MAX, Cookie, CookieError, POSITION_BYTES_MAX, RID_MAX};
pub use vector::Vector;
