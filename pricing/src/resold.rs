//! Whose machines a broker sells.

use runwhere_model::{Mark, Marks};

/// What holds of all figures of a provider: medians, brokers, auction prices.
pub(crate) fn marks(provider: &str, marks: Marks) -> Marks {
    match provider {
        "vast" => marks.with(Mark::Statistical),
        "shadeform" | "primeintellect" | "spheron" => marks.with(Mark::Resold),
        "mithril" => marks.with(Mark::Floor),
        _ => marks,
    }
}

/// The cloud behind a broker's type, where the type's name tells it (`lambdalabs__8xH100_80GB__…`), by
/// the id that the cloud itself has here.
pub(crate) fn upstream(provider: &str, instance_type: &str) -> Option<String> {
    let name = match provider {
        "shadeform" => instance_type.split_once('_')?.0,
        "primeintellect" => instance_type.split_once("__")?.0,
        _ => return None,
    };
    Some(match name {
        "lambdalabs" => "lambda".to_owned(),
        "datacrunch" => "verda".to_owned(),
        "crusoecloud" => "crusoe".to_owned(),
        name => name.to_owned(),
    })
}
