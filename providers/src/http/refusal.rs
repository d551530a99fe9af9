//! A provider's own words of refusal.

use runwhere_model::ErrorKind;

/// What a provider says in the body of a refusal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The provider's own code, for example `Throttling.User`.
    pub code: String,
    /// Its sentence.
    pub message: String,
    /// What the code means, where it says more than the status does.
    pub kind: Option<ErrorKind>,
}

/// For providers whose bodies say nothing that the status does not.
pub fn no_refusal(_status: u16, _body: &[u8]) -> Option<Refusal> {
    None
}
