//! Who calls: tokens, principals, the first start's own tenant.

mod caller;
mod service;

pub use caller::Caller;
pub use service::{AccountError, Accounts, NewKey};
