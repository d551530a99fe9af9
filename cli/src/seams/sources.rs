//! Price sources of packages that this program may be built without.

use runwhere_providers::sources::ForeignFn;

/// What builds them: AWS with the feature `aws`, nothing without.
pub(crate) fn foreign() -> ForeignFn {
    #[cfg(feature = "aws")]
    return runwhere_aws::foreign;
    #[cfg(not(feature = "aws"))]
    return runwhere_providers::sources::no_foreign;
}
