//! Wrong arguments, told in both languages: what the parser found, as a sentence and a remedy.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde_json::Value;

use crate::failure::Failure;
use crate::texts::{self, Text};

/// The failure of a refused command line: exit code 2, with the argument, its value and the suggestion as fields of the JSON form.
#[must_use]
pub fn usage_error(error: &clap::Error) -> Failure {
    let argument = first(error, ContextKind::InvalidArg);
    let value = first(error, ContextKind::InvalidValue);
    let prior = first(error, ContextKind::PriorArg);
    let command = first(error, ContextKind::InvalidSubcommand);
    let shown = argument.clone().unwrap_or_default();
    let given = value.clone().unwrap_or_default();
    let message = match error.kind() {
        ErrorKind::InvalidSubcommand => texts::command_unknown(command.clone().unwrap_or_default()),
        ErrorKind::UnknownArgument => texts::argument_unknown(&shown),
        ErrorKind::MissingRequiredArgument => {
            texts::argument_missing(all(error, ContextKind::InvalidArg).join(" "))
        }
        ErrorKind::MissingSubcommand => texts::command_missing(command.clone().unwrap_or_default()),
        ErrorKind::InvalidValue if given.is_empty() => texts::value_missing(&shown),
        ErrorKind::InvalidValue => texts::value_invalid(&shown, &given),
        ErrorKind::ValueValidation if shown.starts_with("--lang") => texts::lang_invalid(&given),
        ErrorKind::ValueValidation => texts::value_invalid(&shown, &given),
        ErrorKind::ArgumentConflict if prior.as_deref() == Some(shown.as_str()) => {
            texts::argument_twice(&shown)
        }
        ErrorKind::ArgumentConflict => {
            texts::arguments_conflict(&shown, all(error, ContextKind::PriorArg).join(" "))
        }
        _ => Text::same(first_line(error)),
    };
    let suggestion =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
            .into_iter()
            .find_map(|kind| first(error, kind));
    let choices = [ContextKind::ValidValue, ContextKind::ValidSubcommand]
        .into_iter()
        .find_map(|kind| Some(all(error, kind)).filter(|all| !all.is_empty()));
    let usage = first(error, ContextKind::Usage);
    let usage = usage.as_deref().map(|usage| usage.trim_start_matches("Usage:").trim());
    let bounds = bounds(error);
    let mut failure = Failure::usage("usage", message);
    let hint = match (&suggestion, &choices, &bounds) {
        (Some(suggestion), ..) => Some(texts::did_you_mean(suggestion)),
        (None, Some(choices), _) => Some(texts::choices(choices.join(", "))),
        (None, None, Some(bounds)) => Some(bounds.clone()),
        (None, None, None) => Some(usage.map_or_else(texts::help_hint, texts::usage_line)),
    };
    if let Some(hint) = hint {
        failure = failure.hint(hint);
    }
    for (key, found) in [
        ("argument", argument.or(command)),
        ("value", value),
        ("suggestion", suggestion),
        ("usage", usage.map(str::to_owned)),
    ] {
        if let Some(found) = found {
            failure = failure.detail(key, found);
        }
    }
    match choices {
        Some(choices) => failure.detail("choices", Value::from(choices)),
        None => failure,
    }
}

/// What a number may be, where the parser's reason tells it.
fn bounds(error: &clap::Error) -> Option<Text> {
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let reason = std::error::Error::source(error)?.to_string();
    if let Some((_, range)) = reason.split_once(" is not in ") {
        return Some(texts::value_range(range));
    }
    reason.contains("digit").then(texts::value_number)
}

fn first(error: &clap::Error, kind: ContextKind) -> Option<String> {
    all(error, kind).into_iter().next()
}

fn all(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::StyledStr(text)) => vec![text.to_string()],
        Some(ContextValue::StyledStrs(texts)) => texts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

fn first_line(error: &clap::Error) -> String {
    let shown = error.render().to_string();
    let line = shown.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::texts::Lang;

    fn refused(line: &str) -> Failure {
        let parsed = crate::args::Cli::command().try_get_matches_from(line.split(' '));
        usage_error(&parsed.unwrap_err())
    }

    #[test]
    fn each_kind_names_the_argument_and_the_remedy() {
        for (line, message, hint) in [
            ("runwhere sumbit -f a", "sumbit", "submit"),
            ("runwhere submit --fiel a", "--fiel", "--file"),
            ("runwhere submit", "--file <YAML>", "runwhere submit"),
            ("runwhere submit -f", "--file <YAML>", "--help"),
            ("runwhere price list --billing-model spt", "spt", "spot"),
            ("runwhere get jobs --status bogus", "bogus", "succeeded"),
            ("runwhere get jobs --kind inferrence", "inferrence", "Inference"),
            ("runwhere price list --limit 2 --all", "--all", "runwhere price list"),
            ("runwhere logs a --tail 5001", "5001", "1..=5000"),
            ("runwhere logs a --tail many", "many", "整数"),
            ("runwhere submit -f a -f b", "--file <YAML>", "runwhere submit"),
            ("runwhere --lang fr version", "fr", "version"),
        ] {
            let failure = refused(line);
            let (said, remedy) = (failure.message.get(Lang::Zh), failure.hint.as_ref());
            let remedy = remedy.map(|hint| hint.get(Lang::Zh)).unwrap_or_default();
            assert!(said.contains(message), "{line}: {said}");
            assert!(line.ends_with("version") || remedy.contains(hint), "{line}: {remedy}");
            assert!(said.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c)), "{said}");
            assert!(!failure.message.get(Lang::En).contains("error:"));
        }
    }
}
