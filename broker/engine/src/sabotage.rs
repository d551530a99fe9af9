//! Defects that can be switched on one at a time, to show that the simulation catches each. The
//! choice is the calling thread's. Compiled only with the feature `sabotage`; without it the macro
//! of that name is the constant `false`.

use std::cell::Cell;

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
    /// The sweeper ends what seems to be nobody's at its first look, however young it is.
    SweptWithoutAgeGate,
    /// The sweeper reads the leases before it lists the cloud, and believes one look.
    LeasesReadBeforeCloud,
    /// The node that a launch was answered with is written down only after a wait for it.
    NodeSavedAfterWait,
    /// The epoch that an agent states is not looked at.
    EpochNotChecked,
    /// The provider's bill is read, and corrects nothing.
    BillIgnored,
    /// A node that its lease took over is billed as nobody's too.
    BilledTwice,
    /// A process that starts takes the calls of the others for lost, though they live.
    LivingTakenForLost,
}

impl Sabotage {
    /// Every defect.
    pub const ALL: [Self; 27] = [
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
        Self::SweptWithoutAgeGate,
        Self::LeasesReadBeforeCloud,
        Self::NodeSavedAfterWait,
        Self::EpochNotChecked,
        Self::BillIgnored,
        Self::BilledTwice,
        Self::LivingTakenForLost,
    ];

    /// Whether the calling thread has this defect now.
    pub fn is_on(self) -> bool {
        CHOSEN.get() == Some(self)
    }

    /// Gives the calling thread a defect, or none.
    pub fn choose(defect: Option<Self>) {
        CHOSEN.set(defect);
    }
}

thread_local! {
    static CHOSEN: Cell<Option<Sabotage>> = const { Cell::new(None) };
}
