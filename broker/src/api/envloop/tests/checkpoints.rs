//! Outputs that are adapters, and those that only look like one.

use serde_json::{Value, json};

use super::site::Site;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

fn settings() -> Value {
    json!({ "peft_type": "LORA", "base_model_name_or_path": "base/model", "r": 4, "target_modules": ["q_proj"] })
}

/// A file of weights with this header and so many bytes after it.
fn weights(header: &Value, data: usize) -> Vec<u8> {
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + data, 7);
    file
}

fn pair() -> Value {
    let half = |at: u64| json!({ "dtype": "BF16", "shape": [4, 2], "data_offsets": [at, at + 16] });
    json!({ "__metadata__": { "format": "pt" }, "q.lora_A.weight": half(0), "q.lora_B.weight": half(16) })
}

#[tokio::test]
async fn each_way_to_be_no_checkpoint_is_told_and_leaves_an_artifact() {
    let site = Site::new().await;
    let good = settings().to_string().into_bytes();
    let with = |key: &str, value: Value| {
        let mut settings = settings();
        settings[key] = value;
        settings.to_string().into_bytes()
    };
    let moved = |header: &dyn Fn(&mut Value)| {
        let mut all = pair();
        header(&mut all);
        weights(&all, 32)
    };
    let whole = weights(&pair(), 32);
    let long = [u64::MAX.to_le_bytes().as_slice(), b"{}"].concat();
    type Case = (&'static str, Option<Vec<u8>>, Option<Vec<u8>>);
    let cases: Vec<Case> = vec![
        ("file_missing", Some(good.clone()), None),
        ("file_missing", None, Some(whole.clone())),
        ("config_unreadable", Some(b"{".to_vec()), Some(whole.clone())),
        ("config_unreadable", Some(vec![b' '; (1 << 20) + 1]), Some(whole.clone())),
        ("not_lora", Some(with("peft_type", json!("IA3"))), Some(whole.clone())),
        (
            "base_model_invalid",
            Some(with("base_model_name_or_path", json!(""))),
            Some(whole.clone()),
        ),
        ("rank_invalid", Some(with("r", json!(0))), Some(whole.clone())),
        ("target_modules_invalid", Some(with("target_modules", json!([]))), Some(whole.clone())),
        ("header_length_invalid", Some(good.clone()), Some(b"short".to_vec())),
        ("header_length_invalid", Some(good.clone()), Some(long)),
        ("header_length_invalid", Some(good.clone()), Some(whole[..whole.len() - 40].to_vec())),
        ("header_unreadable", Some(good.clone()), Some(weights(&json!([]), 32))),
        (
            "tensor_dtype_unknown",
            Some(good.clone()),
            Some(moved(&|all| all["q.lora_A.weight"]["dtype"] = json!("F5"))),
        ),
        (
            "tensor_size_invalid",
            Some(good.clone()),
            Some(moved(&|all| all["q.lora_A.weight"]["shape"] = json!([4, 3]))),
        ),
        ("tensors_misplaced", Some(good.clone()), Some(weights(&pair(), 33))),
        ("tensors_misplaced", Some(good.clone()), Some(whole[..whole.len() - 1].to_vec())),
        (
            "lora_weights_missing",
            Some(good.clone()),
            Some(weights(
                &json!({ "w": { "dtype": "U8", "shape": [32], "data_offsets": [0, 32] } }),
                32,
            )),
        ),
    ];
    let (job, trials) = site.job(1).await;
    let trial = &trials[0];
    for (number, (_, settings, weights)) in cases.iter().enumerate() {
        for (name, content) in [(CONFIG, settings), (WEIGHTS, weights)] {
            if let Some(content) = content {
                site.output(trial, &format!("outputs/{number:02}/{name}"), content).await;
            }
        }
    }
    site.end(trial, 0).await;
    let result = site.get(&format!("/v1/trials/{trial}/result")).await;
    assert_eq!(result["checkpoints"], json!([]));
    let wanted: Vec<Value> = cases
        .iter()
        .enumerate()
        .map(|(number, (reason, ..))| json!({ "folder": format!("outputs/{number:02}"), "reason": reason }))
        .collect();
    assert_eq!(result["not_checkpoints"], json!(wanted));
    let listed = site.get(&format!("/v1/job/checkpoints?job_id={job}")).await;
    assert_eq!(listed["items"], json!([]));
    let files = cases
        .iter()
        .map(|(_, one, other)| usize::from(one.is_some()) + usize::from(other.is_some()));
    let artifacts = site.get(&format!("/v1/trials/{trial}/artifacts?limit=100")).await;
    assert_eq!(artifacts["items"].as_array().unwrap().len(), files.sum::<usize>());
}

#[tokio::test]
async fn a_checkpoint_is_listed_downloaded_and_deleted() {
    let site = Site::new().await;
    let (job, trials) = site.job(2).await;
    let content = [settings().to_string().into_bytes(), weights(&pair(), 32)];
    for trial in &trials {
        for (name, content) in [CONFIG, WEIGHTS].iter().zip(&content) {
            site.output(trial, &format!("outputs/lora/{name}"), content).await;
        }
        site.output(trial, "outputs/lora/README.md", b"x").await;
        site.output(trial, "outputs/other.txt", b"y").await;
    }
    site.end(&trials[0], 0).await;
    let list = || site.get("/v1/jobs/checkpoints");
    // The other trial may still go on.
    let listed = list().await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    site.end(&trials[1], 0).await;
    let listed = list().await;
    let items = listed["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    let first = &items[0];
    assert_eq!(
        (&first["checkpoint_type"], &first["base_model"], &first["lora_rank"], &first["tensors"]),
        (&json!("lora"), &json!("base/model"), &json!(4), &json!(2))
    );
    let names: Vec<&str> = first["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["README.md", CONFIG, WEIGHTS]);
    let (id, path) =
        (first["checkpoint_id"].as_str().unwrap(), first["tinker_path"].as_str().unwrap());
    assert_eq!(path, format!("envloop://{job}/{id}"));
    for name in [path, id] {
        let addresses = site.get(&format!("/v1/job/checkpoints/download?path={name}")).await;
        let urls = addresses["urls"].as_object().unwrap();
        assert_eq!(urls.len(), 3);
        for (name, content) in [CONFIG, WEIGHTS].iter().zip(&content) {
            let url = urls[*name].as_str().unwrap();
            let path = &url[url.find("/v1/").unwrap()..];
            // Without a key, for a while; and not one digit of it may be another.
            let fetched = site.bench.call("", "GET", path, "").await;
            assert_eq!((fetched.status, &fetched.bytes), (200, content), "{path}");
            let mut forged = path.to_owned();
            let last = if forged.pop() == Some('0') { '1' } else { '0' };
            forged.push(last);
            site.bench.call("", "GET", &forged, "").await.refused(403, "ACCESS_DENIED");
        }
    }
    let place = format!("/v1/job/checkpoints/{id}");
    let operation = site.bench.call(&site.bench.key, "DELETE", &place, "").await.expect(200);
    assert_eq!((&operation["status"], &operation["errors"]), (&json!("SUCCEEDED"), &json!([])));
    let told = operation["operation_id"].as_str().unwrap();
    let told = site.get(&format!("/v1/projects/default/operations/{told}")).await;
    assert_eq!(told["status"], "SUCCEEDED");
    site.bench
        .call(&site.bench.key, "DELETE", &place, "")
        .await
        .refused(404, "CHECKPOINT_NOT_FOUND");
    let gone = format!("/v1/job/checkpoints/download?path={id}");
    site.bench.call(&site.bench.key, "GET", &gone, "").await.refused(404, "CHECKPOINT_NOT_FOUND");
    assert_eq!(list().await["items"].as_array().unwrap().len(), 1);
    // Its files stay.
    for trial in &trials {
        let artifacts = site.get(&format!("/v1/trials/{trial}/artifacts")).await;
        assert_eq!(artifacts["items"].as_array().unwrap().len(), 4);
    }
}
