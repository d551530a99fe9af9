//! Who calls: tokens, principals, the first start's own tenant.

mod caller;
mod service;

pub use caller::Caller;
pub use runwhere_engine::KeyKind;
pub use service::{AccountError, Accounts, NewKey};
