//! Valid declarations that are not served yet.

use runwhere_model::Lang;
use serde::Serialize;

use super::file::{TaskFile, TaskKind};
use super::texts;

/// A valid declaration that nothing serves yet: refused by name at submit, never ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotServed {
    /// `kind: Inference`.
    Inference,
    /// `kind: Notebook`.
    Notebook,
    /// `environment.conda`.
    Conda,
    /// `environment.requirements`.
    Requirements,
    /// `storage.models`.
    Models,
}

impl NotServed {
    /// The stable code of the declaration.
    pub fn code(self) -> &'static str {
        match self {
            Self::Inference => "inference_not_served",
            Self::Notebook => "notebook_not_served",
            Self::Conda => "conda_not_served",
            Self::Requirements => "requirements_not_served",
            Self::Models => "models_not_served",
        }
    }

    /// The field that declares it.
    pub fn path(self) -> &'static str {
        match self {
            Self::Inference | Self::Notebook => "kind",
            Self::Conda => "environment.conda",
            Self::Requirements => "environment.requirements",
            Self::Models => "storage.models",
        }
    }

    /// One sentence that names the declaration.
    pub fn message(self, lang: Lang) -> String {
        texts::not_served(self, lang)
    }

    /// What to do instead.
    pub fn remedy(self, lang: Lang) -> String {
        texts::not_served_remedy(self, lang)
    }
}

impl TaskFile {
    /// The declarations of this file that are valid and not served yet, in the order of the file's sections.
    pub fn not_served(&self) -> Vec<NotServed> {
        let kind = match self.kind.value {
            TaskKind::Training => None,
            TaskKind::Inference => Some(NotServed::Inference),
            TaskKind::Notebook => Some(NotServed::Notebook),
        };
        let conda = self.environment.conda.as_ref().map(|_| NotServed::Conda);
        let requirements = self.environment.requirements.as_ref().map(|_| NotServed::Requirements);
        let models = (!self.storage.models.is_empty()).then_some(NotServed::Models);
        [kind, conda, requirements, models].into_iter().flatten().collect()
    }
}
