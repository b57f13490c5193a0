//! Extended operations (RFC 4511 §4.12) that are understood, a file each: OIDs, and how values are read and written.

#![deny(clippy::indexing_slicing)]

mod acknowledge;
mod cancel;
mod lburp;
mod notice_of_disconnection;
mod password_modify;
mod refresh;
mod replica;
mod start_tls;
mod transaction;
mod verify_credentials;
mod who_am_i;

pub use acknowledge::{ACKNOWLEDGE, Acknowledge};
pub use cancel::{CANCEL, cancel_id, put_cancel_id};
pub use lburp::{
    END_LBURP, END_LBURP_RESPONSE, EndLburp, LBURP_INCREMENTAL, LBURP_UPDATE,
    LBURP_UPDATE_RESPONSE, LburpUpdate, OperationResults, OperationResultsBuf, START_LBURP,
    START_LBURP_RESPONSE, StartLburp, UpdateOperation, UpdateOperations, UpdateOperationsBuf,
    max_operations, next_sequence_number, put_max_operations,
};
pub use notice_of_disconnection::NOTICE_OF_DISCONNECTION;
pub use password_modify::{
    PASSWORD_MODIFY, PasswordModify, generated_password, put_generated_password,
};
pub use refresh::{REFRESH, Refresh, put_refreshed, refreshed};
pub use replica::{BackupPart, REDEEM_INVITATION, RedeemInvitation, SEND_BACKUP};
pub use start_tls::START_TLS;
pub use transaction::{
    ABORTED_TRANSACTION, END_TRANSACTION, EndTransaction, START_TRANSACTION, TransactionEnded,
    UpdatesControls, put_transaction_ended,
};
pub use verify_credentials::{VERIFY_CREDENTIALS, VerifyCredentials, put_verified, verified};
pub use who_am_i::WHO_AM_I;
