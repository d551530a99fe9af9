//! Tests of whole files.

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use runwhere_model::Lang;

use super::*;

const DOCUMENTED: [(&str, &str); 6] = [
    ("minimal", include_str!("../../../fixtures/task-yaml/documented/minimal-training.yaml")),
    ("single", include_str!("../../../fixtures/task-yaml/documented/training-single-node.yaml")),
    (
        "requirements",
        include_str!("../../../fixtures/task-yaml/documented/training-requirements.yaml"),
    ),
    ("conda", include_str!("../../../fixtures/task-yaml/documented/training-conda.yaml")),
    ("inference", include_str!("../../../fixtures/task-yaml/documented/inference.yaml")),
    ("notebook", include_str!("../../../fixtures/task-yaml/documented/notebook.yaml")),
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
fn bad_files_are_refused_at_the_place() {
    let table: &[(&str, &[&str])] = &[
        // The file.
        ("", &["top_level  1:1"]),
        ("- a\n", &["top_level  1:1"]),
        ("text", &["top_level  1:1"]),
        ("a: b\nc: \"d\n", &["syntax  2:4"]),
        ("job:\n\tname: a\n", &["syntax  2:2"]),
        ("job: {name: a}\n---\njob: {name: b}\n", &["several_documents  2:1"]),
        ("job: {name: a}\nkind: Training\u{0}\n", &["control_character  2:15"]),
        ("job: {name: a\u{1b}}\n", &["control_character  1:14"]),
        ("a: [b", &["syntax  1:6"]),
        ("job: {name: a}\rkind: x\r\n", &["unsupported_kind kind 2:7"]),
        // Keys.
        ("job:\n  name: a\njob:\n  name: b\n", &["duplicate_key job 3:1"]),
        (
            "job: {name: a}\nenvironment:\n  env:\n    A: x\n    A: y\n",
            &["duplicate_key environment.env.A 5:5"],
        ),
        ("job: {name: a}\nx: {p: 1, p: 2}\n", &["unknown_key x 2:1", "duplicate_key x.p 2:11"]),
        ("job: {name: a}\nresources:\n  gpu_num: 1\n", &["unknown_key resources.gpu_num 3:3"]),
        ("job: {name: a}\nimage: b\n", &["unknown_key image 2:1"]),
        (
            "job: {name: a}\nenvironment:\n  env: {on: x, 1: y}\n",
            &["key_not_string environment.env 3:9", "key_not_string environment.env 3:16"],
        ),
        ("job: {name: a}\n? [b]\n: c\n", &["key_not_string  2:3"]),
        ("job: &j {name: a}\nenvironment:\n  <<: *j\n", &["merge_key environment.<< 3:3"]),
        // Tags.
        ("job: {name: !!python/name:os.system a}\n", &["tag_refused  1:13"]),
        (
            "job: {name: a}\nresources: {gpuNum: !!int \"2\"}\n",
            &["tag_refused  2:21", "wrong_type resources.gpuNum 2:21"],
        ),
        // kind and version.
        ("kind: Trainig\njob: {name: a}\n", &["unsupported_kind kind 1:7"]),
        ("kind: \"\"\njob: {name: a}\n", &["empty kind 1:7"]),
        ("version: 1\njob: {name: a}\n", &["needs_quotes version 1:10"]),
        ("version: v2\njob: {name: a}\n", &["unsupported_version version 1:10"]),
        // job.
        ("kind: Training\n", &["required job.name 1:1"]),
        ("kind: Training\njob:\nresources:\n  gpuNum: 1\n", &["required job.name 2:1"]),
        ("job:\n  description: d\n", &["required job.name 1:1"]),
        ("job: text\n", &["wrong_type job 1:6"]),
        ("job:\n  name:\n", &["empty job.name 2:3"]),
        ("job:\n  name: '  '\n", &["empty job.name 2:9"]),
        ("job:\n  name: 12\n", &["needs_quotes job.name 2:9"]),
        ("job:\n  name: yes\n", &["needs_quotes job.name 2:9"]),
        ("job:\n  name: ~\n", &["needs_quotes job.name 2:9"]),
        ("job:\n  name: [a]\n", &["wrong_type job.name 2:9"]),
        ("job:\n  name: ../x\n", &["bad_name job.name 2:9"]),
        ("job:\n  name: a b\n", &["bad_name job.name 2:9"]),
        ("job:\n  name: 'a#b'\n", &["bad_name job.name 2:9"]),
        ("job:\n  name: '[/x]'\n", &["bad_name job.name 2:9"]),
        ("job:\n  name: \"\\e[31m\"\n", &["bad_name job.name 2:9"]),
        ("job:\n  name: 任务\n", &["bad_name job.name 2:9"]),
        ("job:\n  name: job-0a1b2c3d\n", &["name_like_job_id job.name 2:9"]),
        ("job:\n  name: Submit\n", &["name_reserved job.name 2:9"]),
        (
            "job:\n  name: a\n  description: \"x\\0\"\n",
            &["forbidden_character job.description 3:16"],
        ),
        ("job:\n  name: a\n  description: 5\n", &["needs_quotes job.description 3:16"]),
        // environment.
        (&with("environment: {image: a b}"), &["bad_image environment.image 2:22"]),
        (
            &with("environment: {conda: a, requirements: b}"),
            &["conda_and_requirements environment 2:25"],
        ),
        (&with("environment: {command: ''}"), &["empty environment.command 2:24"]),
        (&with("environment: {command: []}"), &["empty_list environment.command 2:24"]),
        (&with("environment: {command: ['', a]}"), &["empty environment.command[0] 2:25"]),
        (
            &with("environment: {command: [sleep, 5]}"),
            &["needs_quotes environment.command[1] 2:32"],
        ),
        (&with("environment: {command: {a: b}}"), &["wrong_type environment.command 2:24"]),
        (
            &with("environment: {command: \"a\\0\"}"),
            &["forbidden_character environment.command 2:24"],
        ),
        (&with("environment: {args: a}"), &["wrong_type environment.args 2:21"]),
        (
            &with("environment: {args: [b], command: 'a &'}"),
            &["args_after_script environment.args 2:21"],
        ),
        (&with("environment: {env: [a]}"), &["wrong_type environment.env 2:20"]),
        (
            &with("environment: {env: {A: 1, B: true, C: null, D: }}"),
            &[
                "needs_quotes environment.env.A 2:24",
                "needs_quotes environment.env.B 2:30",
                "needs_quotes environment.env.C 2:39",
                "needs_quotes environment.env.D 2:45",
            ],
        ),
        (
            &with("environment: {env: {1A: x, 'A-B': w, '': z}}"),
            &[
                "bad_env_name environment.env.1A 2:21",
                "bad_env_name environment.env.A-B 2:28",
                "bad_env_name environment.env. 2:38",
            ],
        ),
        (
            &with("environment: {env: {RUNWHERE_JOB_ID: x, RUNW_TOKEN: z}}"),
            &[
                "reserved_env_name environment.env.RUNWHERE_JOB_ID 2:21",
                "reserved_env_name environment.env.RUNW_TOKEN 2:41",
            ],
        ),
        (
            &with("environment: {env: {A: \"x\\0y\"}}"),
            &["forbidden_character environment.env.A 2:24"],
        ),
        (
            &with("environment: {wandb_external: 'true'}"),
            &["wrong_type environment.wandb_external 2:31"],
        ),
        // resources.
        (&with("resources: {gpuNum: 0}"), &["out_of_range resources.gpuNum 2:21"]),
        (&with("resources: {gpuNum: 17}"), &["out_of_range resources.gpuNum 2:21"]),
        (&with("resources: {gpuNum: -1}"), &["out_of_range resources.gpuNum 2:21"]),
        (&with("resources: {gpuNum: 010}"), &["out_of_range resources.gpuNum 2:21"]),
        (
            &with("resources: {gpuNum: 99999999999999999999}"),
            &["out_of_range resources.gpuNum 2:21"],
        ),
        (&with("resources: {gpuNum: true}"), &["wrong_type resources.gpuNum 2:21"]),
        (&with("resources: {gpuNum: '8'}"), &["wrong_type resources.gpuNum 2:21"]),
        (&with("resources: {gpuNum: 1.0}"), &["wrong_type resources.gpuNum 2:21"]),
        (&with("resources: {gpuType: 4090}"), &["needs_quotes resources.gpuType 2:22"]),
        (
            &with("resources: {gpuSkuKey: ecs.gn7i.2xlarge}"),
            &["bad_sku_key resources.gpuSkuKey 2:24"],
        ),
        (&with("resources: {gpuSkuKey: abcdefgh}"), &["bad_sku_key resources.gpuSkuKey 2:24"]),
        (&with("resources: {gpuSkuKey: a/b//d/e}"), &["bad_sku_key resources.gpuSkuKey 2:24"]),
        (
            &with("resources: {gpuSkuKey: a/b/c/on_demand/e%2}"),
            &["bad_sku_key resources.gpuSkuKey 2:24"],
        ),
        // storage.
        (&with("storage: {workdirs: [.]}"), &["wrong_type storage.workdirs[0] 2:22"]),
        (&with("storage: {workdirs: [{}]}"), &["required storage.workdirs[0].path 2:22"]),
        (
            &with("storage: {workdirs: [{path: ../x}]}"),
            &["path_outside storage.workdirs[0].path 2:29"],
        ),
        (
            &with("storage: {workdirs: [{path: a/../..}]}"),
            &["path_outside storage.workdirs[0].path 2:29"],
        ),
        (
            &with("storage: {workdirs: [{path: /etc}]}"),
            &["path_absolute storage.workdirs[0].path 2:29"],
        ),
        (
            &with("storage: {workdirs: [{path: ~/x}]}"),
            &["path_absolute storage.workdirs[0].path 2:29"],
        ),
        (
            &with("storage: {workdirs: [{path: 'C:/x'}]}"),
            &["path_absolute storage.workdirs[0].path 2:29"],
        ),
        (
            &with("storage: {workdirs: [{path: '..\\x'}]}"),
            &["path_backslash storage.workdirs[0].path 2:29"],
        ),
        (
            &with("storage: {workdirs: [{path: \"a\\0\"}]}"),
            &["forbidden_character storage.workdirs[0].path 2:29"],
        ),
        (&with("storage: {checkpoint: {path: /}}"), &["path_root storage.checkpoint.path 2:30"]),
        (
            &with("storage: {checkpoint: {path: /a/../b}}"),
            &["path_outside storage.checkpoint.path 2:30"],
        ),
        (&with("storage: {checkpoint: ck}"), &["wrong_type storage.checkpoint 2:23"]),
        (
            &with("storage: {models: [{source: 'hf://a/b'}]}"),
            &["required storage.models[0].path 2:20"],
        ),
        (
            &with("storage: {models: [{source: 's3://a/b', path: m}]}"),
            &["model_scheme storage.models[0].source 2:29"],
        ),
        (
            &with("storage: {models: [{source: 'HF://a/b', path: m}]}"),
            &["model_scheme storage.models[0].source 2:29"],
        ),
        (
            &with("storage: {models: [{source: 'hf://', path: m}]}"),
            &["model_name storage.models[0].source 2:29"],
        ),
        (
            &with("storage: {models: [{source: 'hf://a/../b', path: m}]}"),
            &["model_name storage.models[0].source 2:29"],
        ),
        (
            &with("storage: {models: [{path: m}, {path: ./m/}]}"),
            &["path_twice storage.models[1].path 2:38"],
        ),
    ];
    let mut wrong = String::new();
    for (text, expected) in table {
        let found = problems(text);
        if found != *expected {
            let _ = writeln!(wrong, "{text:?}\n  expected {expected:?}\n  found    {found:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
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

/// A documented file with pieces cut, doubled, replaced and inserted.
fn mutated() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "[", "]", "{", "}", ":", "- ", "? ", "&a ", "*a", "!", "!!", "|", ">", "%", "---\n",
            "...\n", "\n", "  ", "\t", "\"", "'", "\\", "#", "<<: ", "yes", "null", "\u{feff}",
            "\u{202e}", "\u{85}", "\r", "@", "`", "1", "../",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    let edit = (any::<prop::sample::Index>(), 0_usize..12, piece);
    (0..DOCUMENTED.len(), prop::collection::vec(edit, 1..6)).prop_map(|(which, edits)| {
        let mut text: Vec<char> = DOCUMENTED[which].1.chars().collect();
        for (at, cut, piece) in edits {
            let start = at.index(text.len() + 1);
            let end = (start + cut).min(text.len());
            text.splice(start..end, piece.chars());
        }
        text.into_iter().collect()
    })
}

fn judge(text: &str) {
    if let Err(errors) = TaskFile::parse(text) {
        assert_safe(&errors);
        let end = node::end_of(text);
        for error in &errors.errors {
            let at = error.position.unwrap();
            assert!((Position::START..=end).contains(&at), "{at:?} of {end:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_judged(text in any::<String>()) {
        judge(&text);
    }

    #[test]
    fn any_yaml_like_text_is_judged(text in "[-?:,\\[\\]{}#&*!|>'\"%@` \na-c0-2~<=.\t]{0,80}") {
        judge(&text);
        judge(&with(&text));
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(errors) = TaskFile::parse_bytes(&bytes) {
            assert_safe(&errors);
        }
    }

    #[test]
    fn damaged_files_are_judged(text in mutated()) {
        judge(&text);
    }

    #[test]
    fn an_accepted_name_keeps_the_grammar(name in ".{0,70}") {
        let quoted = serde_json::to_string(&name).unwrap();
        if let Ok(file) = TaskFile::parse(&format!("job: {{name: {quoted}}}")) {
            prop_assert_eq!(&file.job.name, &name);
            prop_assert!(name.len() <= 63 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
        }
    }
}
