//! Are the wanted GPUs really there?

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::protocol::{Gpu, Gpus};

const LIMIT: Duration = Duration::from_secs(60);

/// GPUs of this allocation as the driver names them.
///
/// # Errors
/// One sentence for people: there are too few, or the driver does not answer.
pub(crate) async fn check(wanted: &Gpus, devices: Option<&[String]>) -> Result<Vec<Gpu>, String> {
    if wanted.count == 0 {
        return Ok(Vec::new());
    }
    if wanted.pretend {
        let gpu = Gpu { name: wanted.model.clone(), memory_mib: 0 };
        return Ok(vec![gpu; wanted.count as usize]);
    }
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]);
    if let Some(devices) = devices {
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
    Ok(gpus)
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

    #[tokio::test]
    async fn pretended_and_absent_gpus_need_no_driver() {
        let wanted = Gpus { count: 2, model: "a100-80g".to_owned(), pretend: true };
        assert_eq!(check(&wanted, None).await.unwrap().len(), 2);
        let none = Gpus { count: 0, pretend: false, ..wanted };
        assert_eq!(check(&none, None).await, Ok(Vec::new()));
    }
}
