//! From flags and file to a request.

use serde_json::{Map, Value, json};

use super::args::Submit;
use super::failure::{ElFailure, Outcome};
use crate::seams::task::request_file;
use crate::texts::el as texts;

/// Makes the request; it always has a request id, so that an uncertain submit can be repeated.
pub(super) fn request(args: &Submit) -> Outcome<Value> {
    if args.kind != "train" {
        return Err(ElFailure::usage(texts::train_only()));
    }
    let overrides = overrides(args)?;
    let mut request = match &args.spec {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                ElFailure::local("FILE_ERROR", texts::file_failed(path.display(), error))
            })?;
            // Of a key that is there twice the server would see one.
            let value = request_file(path, text.as_bytes())
                .map_err(|why| ElFailure::local("INVALID_JSON", why))?;
            let Value::Object(mut request) = value else {
                let why = texts::file_not_object(path.display());
                return Err(ElFailure::local("INVALID_JSON", why));
            };
            over_file(&mut request, &overrides)?;
            request
        }
        None => {
            if args.runner.is_none() {
                return Err(ElFailure::usage(texts::runner_needed()));
            }
            let trials: Vec<Value> = (1..=args.trials.unwrap_or(1))
                .map(|number| json!({ "name": format!("trial-{number}"), "spec": overrides }))
                .collect();
            Map::from_iter([("trials".to_owned(), trials.into())])
        }
    };
    request.insert("type".to_owned(), "train".into());
    if let Some(id) = &args.request_id {
        request.insert("request_id".to_owned(), id.clone().into());
    } else if request.get("request_id").is_none_or(Value::is_null) {
        request.insert("request_id".to_owned(), uuid::Uuid::new_v4().to_string().into());
    }
    Ok(Value::Object(request))
}

/// The fields that flags name.
fn overrides(args: &Submit) -> Outcome<Map<String, Value>> {
    let mut spec = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            spec.insert(key.to_owned(), value);
        }
    };
    put("runner", args.runner.clone().map(Value::from));
    put("image", args.docker.clone().map(Value::from));
    if let Some(command) = &args.command {
        if command.trim().is_empty() || command.len() > 65_536 {
            return Err(ElFailure::usage(texts::command_invalid()));
        }
        put("command", Some(command.clone().into()));
    }
    put("timeout_seconds", args.timeout_seconds.map(Value::from));
    let mut resources = Map::new();
    let mut resource = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            resources.insert(key.to_owned(), value);
        }
    };
    if args.gpu_type.as_ref().is_some_and(|text| text.trim().is_empty()) {
        return Err(ElFailure::usage(texts::gpu_type_blank()));
    }
    resource("gpu_type", args.gpu_type.clone().map(Value::from));
    resource("gpus", args.gpu.map(Value::from));
    resource("cpus", args.cpu.map(Value::from));
    for (name, key, value) in [
        ("--memory", "memory_mb", &args.memory),
        ("--disk", "storage_mb", &args.disk),
        ("--shm-size", "shm_mb", &args.shm_size),
    ] {
        let mib = value.as_ref().map(|text| mebibytes(name, text)).transpose()?;
        resource(key, mib.map(Value::from));
    }
    if !resources.is_empty() {
        spec.insert("resources".to_owned(), resources.into());
    }
    Ok(spec)
}

/// `64Gi` and the like in MiB.
fn mebibytes(name: &str, text: &str) -> Outcome<u64> {
    let wrong = || ElFailure::usage(texts::size_invalid(name, text));
    let bare = text.strip_suffix('B').unwrap_or(text);
    let (number, unit) = bare.split_at_checked(bare.len().saturating_sub(2)).ok_or_else(wrong)?;
    let factor = match unit {
        "Mi" => 1,
        "Gi" => 1024,
        "Ti" => 1024 * 1024,
        _ => return Err(wrong()),
    };
    let plain = !number.is_empty()
        && !number.starts_with('0')
        && number.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = number.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Lets flags win in every trial of a file; resource keys that no flag names are kept.
fn over_file(request: &mut Map<String, Value>, overrides: &Map<String, Value>) -> Outcome<()> {
    if overrides.is_empty() {
        return Ok(());
    }
    let mut any = false;
    if let Some(spec) = request.get_mut("spec") {
        over(spec, overrides)?;
        any = true;
    }
    if let Some(Value::Array(trials)) = request.get_mut("trials") {
        for trial in trials {
            let spec =
                trial.as_object_mut().map(|trial| trial.entry("spec").or_insert_with(|| json!({})));
            match spec {
                Some(spec) => over(spec, overrides)?,
                None => return Err(ElFailure::usage(texts::trial_not_object())),
            }
            any = true;
        }
    }
    if any { Ok(()) } else { Err(ElFailure::usage(texts::no_trials())) }
}

fn over(spec: &mut Value, overrides: &Map<String, Value>) -> Outcome<()> {
    let Value::Object(spec) = spec else {
        return Err(ElFailure::usage(texts::spec_not_object()));
    };
    for (key, value) in overrides {
        match (key.as_str(), value) {
            ("resources", Value::Object(named)) => {
                let own = spec.entry("resources").or_insert_with(|| json!({}));
                let Value::Object(own) = own else {
                    return Err(ElFailure::usage(texts::resources_not_object()));
                };
                own.extend(named.clone());
            }
            ("timeout_seconds", _) => {
                spec.remove("timeout_sec");
                spec.insert(key.clone(), value.clone());
            }
            _ => {
                spec.insert(key.clone(), value.clone());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::{Cli, Command, Job};
    use super::*;
    use crate::texts::Lang;

    fn made(words: &[&str]) -> Result<Value, ElFailure> {
        let whole = ["el", "job", "submit"].iter().chain(words);
        let parsed = Cli::try_parse_from(whole).unwrap_or_else(|error| panic!("{error}"));
        let Command::Job(Job::Submit(args)) = parsed.command else { panic!() };
        request(&args)
    }

    #[test]
    fn the_documents_flags_make_the_documents_request() {
        let value = made(&[
            "--type",
            "train",
            "--runner",
            "envloop/bash@c",
            "--trials",
            "2",
            "--gpu-type",
            "H100",
            "--gpu",
            "4",
            "--docker",
            "i",
            "--cpu",
            "8",
            "--memory",
            "64Gi",
            "--disk",
            "100Gi",
            "--shm-size",
            "16Gi",
            "--command",
            "python -c \"x\"",
            "--timeout-seconds",
            "600",
            "--request-id",
            "gpu-run-001",
        ])
        .unwrap();
        assert_eq!(value["request_id"], "gpu-run-001");
        assert_eq!(value["trials"].as_array().unwrap().len(), 2);
        let spec = &value["trials"][1]["spec"];
        assert_eq!(value["trials"][1]["name"], "trial-2");
        assert_eq!(
            spec["resources"],
            json!({ "gpu_type": "H100", "gpus": 4, "cpus": 8, "memory_mb": 65536, "storage_mb": 102400, "shm_mb": 16384 })
        );
        assert_eq!(
            (spec["timeout_seconds"].as_u64(), spec["command"].as_str()),
            (Some(600), Some("python -c \"x\""))
        );
        let alone = made(&["--runner", "a/b@c"]).unwrap();
        assert_eq!(alone["trials"].as_array().unwrap().len(), 1);
        assert!(alone["request_id"].as_str().is_some_and(|id| id.len() == 36));
    }

    #[test]
    fn flags_win_over_a_file_and_keep_what_they_do_not_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let content = json!({ "request_id": "r", "trials": [
            { "name": "a", "spec": { "runner": "x/y@1", "resources": { "gpu_type": "A100", "gpus": 1, "cpus": 3 }, "timeout_sec": 5, "tags": { "k": "v" } } },
            { "name": "b", "spec": { "runner": "x/y@1" } },
        ]});
        std::fs::write(file.path(), content.to_string()).unwrap();
        let path = file.path().to_str().unwrap();
        let value = made(&["--spec", path, "--gpu", "2", "--timeout-seconds", "9"]).unwrap();
        let first = &value["trials"][0]["spec"];
        assert_eq!(first["resources"], json!({ "gpu_type": "A100", "gpus": 2, "cpus": 3 }));
        assert_eq!((&first["timeout_seconds"], first.get("timeout_sec")), (&json!(9), None));
        assert_eq!((&first["tags"], &value["request_id"]), (&json!({ "k": "v" }), &json!("r")));
        assert_eq!(value["trials"][1]["spec"]["resources"], json!({ "gpus": 2 }));
        assert!(
            Cli::try_parse_from(["el", "job", "submit", "--spec", path, "--trials", "2"]).is_err()
        );
    }

    #[test]
    fn a_file_that_names_a_key_twice_is_not_sent_with_one_of_the_two() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = r#"{ "spec": { "runner": "x/y@1", "resources": { "gpus": 1, "gpus": 8 } } }"#;
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        let refused = made(&["--spec", path]).unwrap_err();
        let told = refused.message.get(Lang::En);
        assert!(told.starts_with(path) && told.contains("`gpus` is there twice"), "{told}");
    }

    #[test]
    fn other_spellings_and_sizes_are_refused() {
        for words in [
            ["--trails", "2"],
            ["--gput-type", "H100"],
            ["--gpu-typ", "H100"],
            ["--trial", "2"],
            ["--trials", "0"],
            ["--trials", "17"],
            ["--gpu", "0"],
            ["--gpu", "-1"],
            ["--gpu", "1.5"],
            ["--tags", "a=b"],
            ["--timeout-sec", "5"],
        ] {
            let whole = ["el", "job", "submit", "--runner", "a/b@c"].into_iter().chain(words);
            assert!(Cli::try_parse_from(whole).is_err(), "{words:?}");
        }
        for bad in ["64", "64G", "064Gi", "0Gi", "-1Gi", "64GiB2", "é", "99999999999999Ti"] {
            assert!(mebibytes("--memory", bad).is_err(), "{bad}");
        }
        assert_eq!(mebibytes("--memory", "64GiB").unwrap(), 65536);
        assert!(Cli::try_parse_from(["el", "trail", "list"]).is_ok());
    }
}
