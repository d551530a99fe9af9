//! Tests of whole files.

mod properties;
mod refused;

use std::fmt::Write as _;
use std::path::Path;

use runwhere_model::Lang;

use super::*;

const DOCUMENTED: [(&str, &str); 6] = [
    ("minimal", include_str!("../../../../fixtures/task-yaml/documented/minimal-training.yaml")),
    ("single", include_str!("../../../../fixtures/task-yaml/documented/training-single-node.yaml")),
    (
        "requirements",
        include_str!("../../../../fixtures/task-yaml/documented/training-requirements.yaml"),
    ),
    ("conda", include_str!("../../../../fixtures/task-yaml/documented/training-conda.yaml")),
    ("inference", include_str!("../../../../fixtures/task-yaml/documented/inference.yaml")),
    ("notebook", include_str!("../../../../fixtures/task-yaml/documented/notebook.yaml")),
];

fn documented(name: &str) -> TaskFile {
    let (_, text) = DOCUMENTED.iter().find(|(known, _)| *known == name).unwrap();
    TaskFile::parse(text).unwrap()
}

/// A valid file whose one line at `job` level is the given text, so that problems of `body` are the only ones.
fn with(body: &str) -> String {
    format!("job: {{name: a}}\n{body}\n")
}

/// `code path line:column` of every problem.
fn problems(text: &str) -> Vec<String> {
    match TaskFile::parse(text) {
        Ok(_) => Vec::new(),
        Err(errors) => {
            assert_safe(&errors);
            errors
                .errors
                .iter()
                .map(|error| {
                    let at = error.position.unwrap();
                    format!("{} {} {}:{}", error.code(), error.path, at.line, at.column)
                })
                .collect()
        }
    }
}

/// Nothing that is said about a file can disturb a terminal or a client that reads markup.
fn assert_safe(errors: &TaskErrors) {
    assert!(!errors.errors.is_empty());
    let mut said = Vec::new();
    for lang in [Lang::Zh, Lang::En] {
        said.extend([errors.message(lang), errors.remedy(lang)]);
        said.extend(
            errors.errors.iter().flat_map(|error| [error.message(lang), error.remedy(lang)]),
        );
    }
    for text in said {
        assert!(!text.is_empty());
        let bad = |c: char| {
            c.is_control() || matches!(c, '[' | ']' | '\u{202e}' | '\u{200b}' | '\u{2028}')
        };
        assert!(!text.contains(bad), "{text:?}");
    }
    for error in &errors.errors {
        for (_, value) in error.problem.params() {
            assert!(!value.contains(|c: char| c.is_control() || c == '['), "{value:?}");
        }
    }
}

#[test]
fn every_documented_template_is_accepted() {
    let minimal = documented("minimal");
    assert_eq!(
        minimal.kind,
        Setting { value: TaskKind::Training, source: SettingSource::UserYaml }
    );
    assert_eq!(minimal.job.name, "llama-finetune");
    assert_eq!(
        minimal.environment.image.as_deref(),
        Some("pytorch/pytorch:2.4.1-cuda12.1-cudnn9-runtime")
    );
    assert_eq!(minimal.resources.gpu_num.value, 1);
    assert_eq!(minimal.resources.gpu_type.as_deref(), Some("a100-80g"));
    assert_eq!(minimal.storage.workdirs, ["."]);
    assert_eq!(minimal.storage.checkpoint.as_deref(), Some("checkpoints"));
    assert_eq!(
        minimal.argv().unwrap(),
        ["/bin/sh", "-c", "python train.py --config configs/sft.yaml"]
    );
    assert_eq!(minimal.not_served(), []);
    minimal.require_gpu().unwrap();

    let single = documented("single");
    assert_eq!(single.environment.env["WANDB_PROJECT"], "llama3-lora");
    assert_eq!(
        single.storage.models,
        [ModelMount {
            source: Some("huggingface://meta-llama/Llama-3-8B".into()),
            model: Some((ModelSource::HuggingFace, "meta-llama/Llama-3-8B".into())),
            path: "/models/llama3-8b".into(),
        }]
    );
    assert_eq!(single.not_served(), [NotServed::Models]);
    assert_eq!(documented("requirements").not_served(), [NotServed::Requirements]);
    assert_eq!(documented("conda").not_served(), [NotServed::Conda, NotServed::Models]);
    assert_eq!(documented("conda").resources.gpu_num.value, 8);

    let inference = documented("inference");
    assert_eq!(inference.argv().unwrap(), ["python", "-m", "vllm.entrypoints.openai.api_server"]);
    assert_eq!(inference.not_served(), [NotServed::Inference, NotServed::Models]);
    assert_eq!(inference.sync_folders(), ["."]);
    let notebook = documented("notebook");
    assert_eq!(notebook.argv(), None);
    assert_eq!(notebook.not_served(), [NotServed::Notebook]);
}

#[test]
fn the_resolved_form_survives_storage() {
    for (name, text) in DOCUMENTED {
        let file = TaskFile::parse(text).unwrap();
        let stored = serde_json::to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<TaskFile>(&stored).unwrap(), file, "{name}");
    }
}

#[test]
fn all_problems_are_told_at_once_and_in_order() {
    let text =
        "kind: Train\nversion: 1\njob:\n  name: 'a b'\nresource: {}\nresources:\n  gpuNum: many\n";
    assert_eq!(
        problems(text),
        [
            "unsupported_kind kind 1:7",
            "needs_quotes version 2:10",
            "bad_name job.name 4:9",
            "unknown_key resource 5:1",
            "wrong_type resources.gpuNum 7:11",
        ]
    );
    let mut many = "job: {name: a}\n".to_owned();
    (0..120).for_each(|n| writeln!(many, "zz{n}: 1").unwrap());
    let errors = TaskFile::parse(&many).unwrap_err();
    assert_eq!((errors.errors.len(), errors.more), (50, 70));
    assert!(errors.message(Lang::En).ends_with("; and 110 more"), "{errors}");
}

#[test]
fn sentences_name_the_field_the_place_and_the_remedy() {
    let error = TaskFile::parse(&with("resources: {gpu_num: 1}")).unwrap_err();
    assert_eq!(
        error.message(Lang::Zh),
        "resources.gpu_num（第 2 行第 13 列）：未知字段 'gpu_num'，是否想写 'gpuNum'？"
    );
    assert_eq!(
        error.message(Lang::En),
        "resources.gpu_num (line 2, column 13): unknown key 'gpu_num'; did you mean 'gpuNum'?"
    );
    assert_eq!(error.remedy(Lang::En), "write 'gpuNum', or remove the key");
    let error =
        TaskFile::parse(&with("storage: {models: [{source: 'x://y', path: m}]}")).unwrap_err();
    assert_eq!(
        error.message(Lang::Zh),
        "storage.models.0.source（第 2 行第 29 列）：不支持的模型来源"
    );
    assert_eq!(
        serde_json::to_value(&error).unwrap()["errors"][0],
        serde_json::json!({"code": "model_scheme", "path": "storage.models[0].source", "line": 2, "column": 29, "params": {}})
    );
    let no_gpu = TaskFile::parse("job: {name: a}").unwrap().require_gpu().unwrap_err();
    assert_eq!(
        no_gpu.message(Lang::Zh),
        "resources：resources.gpuType 和 resources.gpuSkuKey 至少填写一个"
    );
    for (text, start) in [
        ("[]", "任务 YAML（第 1 行第 1 列）：顶层必须是 YAML mapping"),
        ("job: {}", "job.name（第 1 行第 1 列）：必须填写"),
    ] {
        let message = TaskFile::parse(text).unwrap_err().message(Lang::Zh);
        assert!(message.starts_with(start), "{message}");
    }
}

#[test]
fn values_of_the_environment_are_never_repeated() {
    let secret = "sk-very-secret";
    let file = TaskFile::parse(&with(&format!("environment: {{env: {{KEY: {secret}}}}}"))).unwrap();
    assert!(!format!("{file:?}").contains(secret));
    for env in [
        format!("{{1X: {secret}}}"),
        format!("{{X: [{secret}]}}"),
        format!("{{X: \"{secret}\\0\"}}"),
    ] {
        let errors = TaskFile::parse(&with(&format!("environment: {{env: {env}}}"))).unwrap_err();
        let said = format!("{errors:?} {errors} {}", serde_json::to_string(&errors).unwrap());
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn hostile_names_are_shown_escaped() {
    let text = "job: {name: a}\n\"\\e[31m\\u202E\\a[/x]\": 1\n";
    let errors = TaskFile::parse(text).unwrap_err();
    assert_safe(&errors);
    assert!(
        errors.message(Lang::En).contains(r"\u{1b}\u{5b}31m\u{202e}\u{7}\u{5b}/x\u{5d}"),
        "{errors}"
    );
    let long = format!("job: {{name: a}}\n\"{}\": 1\n", "k".repeat(1000));
    let message = TaskFile::parse(&long).unwrap_err().message(Lang::En);
    assert!(message.len() < 250 && message.contains('…'), "{message}");
}

#[test]
fn limits_hold_before_anything_grows() {
    let code = |text: &str| TaskFile::parse(text).unwrap_err().errors[0].code();
    assert_eq!(code(&" ".repeat(MAX_FILE_BYTES + 1)), "file_too_large");
    assert_eq!(
        TaskFile::parse_bytes(&vec![0xff; MAX_FILE_BYTES + 1]).unwrap_err().errors[0].code(),
        "file_too_large"
    );
    assert_eq!(code(&"- ".repeat(200_000)), "too_deep");
    assert_eq!(code(&"? ".repeat(200_000)), "too_deep");
    assert_eq!(code(&"[".repeat(100_000)), "too_deep");
    assert_eq!(code(&"{a: ".repeat(100_000)), "too_deep");
    assert_eq!(code(&"- a\n".repeat(200_000)), "too_complex");
    assert_eq!(code("job: &a [*a]\n"), "recursive_alias");
    assert_eq!(code("job: *nowhere\n"), "syntax");

    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..20 {
        let list = format!("*a{}, ", n - 1).repeat(10);
        writeln!(laughs, "a{n}: &a{n} [{list}]").unwrap();
    }
    assert_eq!(code(&laughs), "too_complex");
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a, ".repeat(10_000));
    assert_eq!(code(&long), "too_complex");
}

#[test]
fn aliases_within_the_limits_are_followed() {
    let file = TaskFile::parse("job: {name: &n lora, description: *n}\n").unwrap();
    assert_eq!(file.job.description.as_deref(), Some("lora"));
}

#[test]
fn bytes_need_to_be_utf8_and_may_have_a_byte_order_mark() {
    let text = b"\xef\xbb\xbfjob:\r\n  name: a\r\n";
    assert_eq!(TaskFile::parse_bytes(text).unwrap().job.name, "a");
    let errors = TaskFile::parse_bytes(b"job:\n  name: \xe4\xbb\xbb\xff\n").unwrap_err();
    let error = &errors.errors[0];
    assert_eq!(
        (error.code(), error.position),
        ("not_utf8", Some(Position { line: 2, column: 10 }))
    );
}

#[test]
fn forms_that_are_accepted() {
    for (name, ok) in [("a", true), ("A.b_c-9", true), ("job-1", true), ("job-0a1b2c3d4", true)] {
        assert_eq!(TaskFile::parse(&format!("job: {{name: {name}}}")).is_ok(), ok, "{name}");
    }
    for (length, ok) in [(63, true), (64, false)] {
        assert_eq!(TaskFile::parse(&format!("job: {{name: {}}}", "n".repeat(length))).is_ok(), ok);
    }
    for (length, ok) in [(1024, true), (1025, false)] {
        let text = format!("job: {{name: a, description: {}}}", "字".repeat(length));
        assert_eq!(TaskFile::parse(&text).is_ok(), ok);
    }
    for (kind, parsed) in [
        ("training", TaskKind::Training),
        ("' INFERENCE '", TaskKind::Inference),
        ("compute", TaskKind::Training),
        ("Batch", TaskKind::Training),
        ("", TaskKind::Training),
        ("NoteBook", TaskKind::Notebook),
    ] {
        assert_eq!(
            TaskFile::parse(&with(&format!("kind: {kind}"))).unwrap().kind.value,
            parsed,
            "{kind}"
        );
    }
    for (given, parsed) in [
        ("-1", Some(MaxDuration::Unlimited)),
        ("'-1'", Some(MaxDuration::Unlimited)),
        ("90", Some(MaxDuration::Seconds(90))),
        ("'90'", Some(MaxDuration::Seconds(90))),
        ("30m", Some(MaxDuration::Seconds(1800))),
        ("8h", Some(MaxDuration::Seconds(28_800))),
        ("7d", Some(MaxDuration::Seconds(604_800))),
        ("365d", Some(MaxDuration::Seconds(MAX_DURATION_SECONDS))),
        ("366d", None),
        ("99999999999999999999d", None),
        ("true", None),
        ("0", None),
        ("-2", None),
        ("08h", None),
        ("1h30m", None),
        ("1.5h", None),
        ("1:30", None),
        ("1_000", None),
        ("h", None),
        ("null", None),
        ("", None),
        ("[1]", None),
        ("٣h", None),
    ] {
        let file = TaskFile::parse(&format!("job:\n  name: a\n  maxDuration: {given}\n"));
        assert_eq!(file.ok().map(|file| file.job.max_duration.value), parsed, "{given}");
    }
    for sku in [
        "ABCDEFGH",
        "aliyun/cn-hangzhou/cn-hangzhou-i/on_demand/ecs.gn7e",
        "local/-/-/on_demand/a%2Fb",
    ] {
        let file = TaskFile::parse(&with(&format!("resources: {{gpuSkuKey: {sku}}}"))).unwrap();
        assert_eq!(file.resources.gpu_sku_key.unwrap().to_string(), sku);
    }
    for image in [
        "vllm/vllm-openai:v0.12.0",
        "jupyter/minimal-notebook:latest",
        "registry.example.com:5000/team/image:tag",
        "a@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ] {
        assert!(
            TaskFile::parse(&with(&format!("environment: {{image: \"{image}\"}}"))).is_ok(),
            "{image}"
        );
    }
    // Sections with nothing in them count as not given.
    let bare = with("environment:\nresources:\nstorage:\n  workdirs:\n  models:\n  checkpoint:");
    assert_eq!(TaskFile::parse(&bare).unwrap(), TaskFile::parse("job: {name: a}").unwrap());
    let paths = with("storage: {workdirs: [{path: ./a//b/.}], checkpoint: {path: /mnt//ck/}}");
    let paths = TaskFile::parse(&paths).unwrap();
    assert_eq!(paths.storage.workdirs, ["a/b"]);
    assert_eq!(paths.storage.checkpoint.as_deref(), Some("/mnt/ck"));
    let env = TaskFile::parse(&with(
        "environment: {wandb_external: yes, env: {A: '', B: \"1\", c_2: !!str 5}}",
    ))
    .unwrap();
    assert!(env.environment.wandb_external);
    assert_eq!(
        env.environment.env.into_iter().collect::<Vec<_>>(),
        [
            ("A".to_owned(), String::new()),
            ("B".to_owned(), "1".to_owned()),
            ("c_2".to_owned(), "5".to_owned()),
        ]
    );
}

#[test]
fn arguments_arrive_as_written() {
    let argv = |environment: &str| {
        TaskFile::parse(&with(&format!("environment: {environment}"))).unwrap().argv().unwrap()
    };
    assert_eq!(argv("{}"), ["python", "main.py"]);
    assert_eq!(argv("{args: [--lr, '0.1']}"), ["python", "main.py", "--lr", "0.1"]);
    assert_eq!(argv("{command: [a, b c], args: ['']}"), ["a", "b c", ""]);

    let hostile = ["a b", "$HOME", "'", "\"; exit 3", "*", ""];
    let quoted: Vec<String> =
        hostile.iter().map(|arg| serde_json::to_string(arg).unwrap()).collect();
    let command = "{command: 'cd / && printf \"%s|\" \"x y\" ', args: [".to_owned()
        + &quoted.join(", ")
        + "]}";
    let argv = argv(&command);
    let output = std::process::Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "x y|a b|$HOME|'|\"; exit 3|*||");
}

#[test]
fn what_counts_is_explained() {
    let fields = |text: &str| -> Vec<(&'static str, String, &'static str)> {
        let fields = TaskFile::parse(text).unwrap().defaults(Lang::Zh);
        assert!(fields.iter().all(|field| !field.reason.is_empty()));
        fields.into_iter().map(|field| (field.name, field.value, field.source.as_str())).collect()
    };
    let default = "platform_default";
    assert_eq!(
        fields("job: {name: a}"),
        [
            ("kind", "Training".to_owned(), default),
            ("job.maxDuration", "-1".to_owned(), default),
            ("resources.gpuNum", "1".to_owned(), default),
            ("environment.command", "python main.py".to_owned(), default),
            ("storage.workdirs", ".".to_owned(), default),
        ]
    );
    let given = "kind: batch\njob: {name: a, maxDuration: 2h}\nresources: {gpuNum: 2}\nenvironment: {command: x}\nstorage: {workdirs: [{path: s}]}\n";
    assert_eq!(
        fields(given),
        [
            ("kind", "Training".to_owned(), "user_yaml"),
            ("job.maxDuration", "7200".to_owned(), "user_yaml"),
            ("resources.gpuNum", "2".to_owned(), "user_yaml"),
            ("environment.command", "x".to_owned(), "user_yaml"),
            ("storage.workdirs", "s".to_owned(), "user_yaml"),
        ]
    );
}

#[test]
fn every_fixture_is_covered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/task-yaml/documented");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), DOCUMENTED.len());
}
