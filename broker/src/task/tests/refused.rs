//! Bad files, one problem each: code, path and place.

use super::*;

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
        (
            &format!("job:\n  name: a\n  description: {}\n", "d".repeat(1025)),
            &["too_long job.description 3:16"],
        ),
        (
            &with(&format!("environment: {{env: {{A: {}}}}}", "v".repeat(65_537))),
            &["too_long environment.env.A 2:24"],
        ),
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
