//! Who calls: tokens, principals, the first start's own tenant.

mod caller;

pub use caller::Caller;
