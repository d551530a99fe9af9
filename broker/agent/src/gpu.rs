//! Are the wanted GPUs really there?

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::protocol::{Bootstrap, Gpu, Gpus};

const LIMIT: Duration = Duration::from_secs(60);

/// GPUs of this allocation as the driver names them; those of other models are left out.
///
/// # Errors
/// One sentence for people: there are too few, they are of another model, or the driver does not
/// answer.
pub(crate) async fn check(wanted: &Gpus, place: &Bootstrap) -> Result<Vec<Gpu>, String> {
    if wanted.count == 0 {
        return Ok(Vec::new());
    }
    if wanted.pretend {
        let gpu = Gpu { name: wanted.model.clone(), memory_mib: 0 };
        return Ok(vec![gpu; wanted.count as usize]);
    }
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]);
    if let Some(devices) = &place.gpu_devices {
        command.arg("-i").arg(devices.join(","));
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output())
        .await
        .map_err(|_| format!("nvidia-smi did not answer within {} s", LIMIT.as_secs()))?
        .map_err(|error| format!("nvidia-smi cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("nvidia-smi failed: {}", text.trim()));
    }
    let gpus = parse(&text);
    if gpus.len() < wanted.count as usize {
        return Err(format!(
            "{} x {} wanted, the driver shows {}",
            wanted.count,
            wanted.model,
            gpus.len()
        ));
    }
    if place.gpus_stated {
        return Ok(gpus);
    }
    let (fitting, others): (Vec<_>, Vec<_>) = gpus.into_iter().partition(|g| wanted.accepts(g));
    match others.first() {
        Some(other) if fitting.len() < wanted.count as usize => Err(format!(
            "{} x {}{} wanted, the driver shows {} x {} with {} MiB",
            wanted.count,
            wanted.model,
            wanted.memory_gib.map(|gib| format!(" with {gib} GiB")).unwrap_or_default(),
            others.iter().filter(|gpu| *gpu == other).count(),
            other.name,
            other.memory_mib,
        )),
        _ => Ok(fitting),
    }
}

// Lines such as `NVIDIA A100-SXM4-80GB, 81920`; a broken GPU shows an error instead.
fn parse(text: &str) -> Vec<Gpu> {
    text.lines()
        .filter_map(|line| {
            let (name, memory) = line.rsplit_once(',')?;
            Some(Gpu { name: name.trim().to_owned(), memory_mib: memory.trim().parse().ok()? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_gpus_do_not_count() {
        let text = "NVIDIA A100-SXM4-80GB, 81920\nUnable to determine the device handle\n\
                    NVIDIA A100-SXM4-80GB, [Unknown Error]\n";
        let gpus = parse(text);
        assert_eq!(gpus.len(), 1);
        assert_eq!(gpus[0].memory_mib, 81920);
    }

    #[test]
    fn models_are_told_apart_by_whole_words_and_memory() {
        let wanted = |names: &[&str], gib| Gpus {
            count: 1,
            memory_gib: gib,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Gpus::default()
        };
        for (names, gib, shown, mib, fits) in [
            (&["A100"][..], Some(80), "NVIDIA A100-SXM4-80GB", 81920, true),
            (&["A100"], Some(80), "NVIDIA A100-SXM4-40GB", 40960, false),
            (&["A100"], Some(80), "Tesla T4", 15360, false),
            (&["T4"], Some(16), "Tesla T4", 15360, true),
            // What the driver keeps is more than 7 % here.
            (&["A10G"], Some(24), "NVIDIA A10G", 22731, true),
            (&["P4"], Some(8), "Tesla P4", 7611, true),
            (&["A10"], Some(24), "NVIDIA A10G", 22731, false),
            (&["L40"], Some(48), "NVIDIA L40S", 46068, false),
            (&["H100"], Some(80), "NVIDIA H100 NVL", 95830, false),
            (&["RTX 4090"], Some(24), "NVIDIA GeForce RTX 4090", 24564, true),
            (&["RTX 4090"], Some(24), "NVIDIA GeForce RTX 4090 D", 24564, false),
            (&["RTX 4070 Ti"], Some(12), "NVIDIA GeForce RTX 4070 SUPER", 12282, false),
            (&["V100", "V100S"], Some(32), "Tesla V100S-PCIE-32GB", 32510, true),
            (&[], Some(80), "NVIDIA Something", 81559, true),
            (&["A100"], None, "NVIDIA A100-SXM4-40GB", 40960, true),
            (&[], None, "anything", 1, true),
            (&[], Some(u32::MAX), "anything", u64::MAX, false),
        ] {
            let gpu = Gpu { name: shown.to_owned(), memory_mib: mib };
            assert_eq!(wanted(names, gib).accepts(&gpu), fits, "{names:?} {gib:?} {shown}");
        }
    }

    #[tokio::test]
    async fn pretended_and_absent_gpus_need_no_driver() {
        let place = serde_json::json!({
            "protocol": 1, "lease_id": "l", "node_id": "n", "broker_url": "http://127.0.0.1:9",
            "lease_token": "t", "agent_ttl_seconds": 60,
        });
        let place: Bootstrap = serde_json::from_value(place).unwrap();
        let model = "a100-80g".to_owned();
        let wanted = Gpus { count: 2, model, pretend: true, ..Gpus::default() };
        assert_eq!(check(&wanted, &place).await.unwrap().len(), 2);
        let none = Gpus { count: 0, pretend: false, ..wanted };
        assert_eq!(check(&none, &place).await, Ok(Vec::new()));
    }
}
