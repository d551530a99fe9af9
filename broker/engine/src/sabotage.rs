//! Defects that can be switched on one at a time, to show that the simulation catches each.
//!
//! Without the feature `sabotage` every question is a constant `false` and nothing of it is
//! compiled into the program. With it the choice is the calling thread's.

/// A defect that a broker could have.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Sabotage {
    /// A launch of unknown outcome counts as refused: another one is made without a look.
    RelaunchWithoutFind,
    /// A launch of unknown outcome is repeated with another token.
    FreshTokenPerRetry,
    /// The cloud's word that it will end a node counts as its end.
    ReleaseWithoutEvidence,
    /// One list without a lease's node proves that there is none.
    OneEmptyListAsProof,
    /// A list that broke off proves it too.
    IncompleteListAsProof,
    /// One read that knows no such node proves its end.
    OneNotFoundAsProof,
    /// A termination that failed three times counts as done.
    TerminateGivenUp,
    /// Provider calls are made before the step that asks for them is durable.
    CallBeforeCommit,
    /// A call whose answer never came is waited for without end.
    CallAwaitedForEver,
    /// A second agent can take over a session.
    SecondKeyAccepted,
    /// A bill ends when that was noticed, not when the cloud says.
    SegmentClosedAtNoticing,
    /// A bill begins when that was noticed, not when the cloud says.
    SegmentOpenedAtNoticing,
    /// An end can follow an end.
    EndOverwritten,
    /// The clean-up is confirmed with the end of the trial.
    CleanUpConfirmedTooEarly,
    /// Log frames are acknowledged before they are stored.
    LogAcknowledgedEarly,
    /// The price ceiling is not looked at again before a launch.
    CeilingNotRechecked,
    /// Nothing is bound of the budget.
    BudgetNotReserved,
    /// Nodes beyond the wanted one are forgotten.
    SurplusForgotten,
    /// A submit's key is not kept.
    KeyNotKept,
    /// An agent that is silent for seconds counts as lost.
    SilenceAsLoss,
}

impl Sabotage {
    /// Every defect.
    pub const ALL: [Self; 20] = [
        Self::RelaunchWithoutFind,
        Self::FreshTokenPerRetry,
        Self::ReleaseWithoutEvidence,
        Self::OneEmptyListAsProof,
        Self::IncompleteListAsProof,
        Self::OneNotFoundAsProof,
        Self::TerminateGivenUp,
        Self::CallBeforeCommit,
        Self::CallAwaitedForEver,
        Self::SecondKeyAccepted,
        Self::SegmentClosedAtNoticing,
        Self::SegmentOpenedAtNoticing,
        Self::EndOverwritten,
        Self::CleanUpConfirmedTooEarly,
        Self::LogAcknowledgedEarly,
        Self::CeilingNotRechecked,
        Self::BudgetNotReserved,
        Self::SurplusForgotten,
        Self::KeyNotKept,
        Self::SilenceAsLoss,
    ];

    /// Whether the calling thread has this defect now.
    #[cfg(not(feature = "sabotage"))]
    #[inline(always)]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Whether the calling thread has this defect now.
    #[cfg(feature = "sabotage")]
    pub fn is_on(self) -> bool {
        switch::CHOSEN.get() == Some(self)
    }
}

#[cfg(feature = "sabotage")]
mod switch {
    use std::cell::Cell;

    use super::Sabotage;

    thread_local! {
        pub(super) static CHOSEN: Cell<Option<Sabotage>> = const { Cell::new(None) };
    }

    /// In every program that can be sabotaged, and in no other: looked for in shipped ones.
    #[used]
    static MARK: &str = "runwhere: this program can be sabotaged";

    impl Sabotage {
        /// Gives the calling thread a defect, or none.
        pub fn choose(defect: Option<Self>) {
            CHOSEN.set(defect);
        }
    }
}
