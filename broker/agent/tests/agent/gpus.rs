//! The GPU check against a driver that is a script.

use runwhere_agent::protocol::{Assignment, EventKind, Gpus};

use crate::broker::{Broker, Seen};
use crate::node::{Node, Setup, shell};

const TWO_A100: &str = "echo 'NVIDIA A100-SXM4-80GB, 81920'; echo 'NVIDIA A100-SXM4-80GB, 81920'";
const ONE_T4: &str = "echo 'NVIDIA A100-SXM4-80GB, 81920'; echo 'Tesla T4, 15360'";

fn wanting(memory_gib: Option<u32>, names: &[&str]) -> Assignment {
    let mut assignment = shell("true");
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let model = "a100-80g".to_owned();
    assignment.gpus = Gpus { count: 2, model, pretend: false, memory_gib, names };
    assignment
}

// Why the check failed; `None` where the GPUs were fine and the program ran.
fn failure(assignment: Assignment, setup: &Setup, driver: &str) -> Option<String> {
    let broker = Broker::start(assignment, Vec::new());
    let mut node = Node::new(&broker, setup);
    node.agent_with_driver(driver);
    let done = |seen: &Seen| seen.events.iter().any(|e| e.kind == EventKind::Done).then_some(());
    broker.wait("done", done);
    broker.seen(|seen| {
        let ran = seen.events.iter().any(|e| matches!(e.kind, EventKind::Started { .. }));
        let failed = seen.events.iter().find_map(|event| match &event.kind {
            EventKind::Failed { stage, reason } if stage == "gpu" => Some(reason.clone()),
            _ => None,
        });
        assert_eq!(ran, failed.is_none());
        failed
    })
}

#[test]
fn a_wrong_gpu_ends_the_trial_before_user_code_and_names_both() {
    let setup = Setup::default();
    let wanted = || wanting(Some(80), &["A100"]);
    assert_eq!(failure(wanted(), &setup, TWO_A100), None);
    assert_eq!(
        failure(wanted(), &setup, ONE_T4).unwrap(),
        "2 x a100-80g with 80 GiB wanted, the driver shows 1 x Tesla T4 with 15360 MiB"
    );
    let reason = failure(wanted(), &setup, &TWO_A100.replace("80GB, 81920", "40GB, 40960"));
    assert_eq!(
        reason.unwrap(),
        "2 x a100-80g with 80 GiB wanted, the driver shows 2 x NVIDIA A100-SXM4-40GB with 40960 MiB"
    );
    let reason = failure(wanted(), &setup, "echo 'NVIDIA A100-SXM4-80GB, 81920'").unwrap();
    assert_eq!(reason, "2 x a100-80g wanted, the driver shows 1");
}

#[test]
fn without_words_or_on_a_persons_word_only_the_number_counts() {
    assert_eq!(failure(wanting(None, &[]), &Setup::default(), ONE_T4), None);
    let stated = Setup { gpus_stated: true, ..Setup::default() };
    assert_eq!(failure(wanting(Some(80), &["A100"]), &stated, ONE_T4), None);
}

#[test]
fn other_gpus_of_the_machine_do_not_disturb() {
    let with_display = format!("echo 'NVIDIA T400, 4096'; {TWO_A100}");
    assert_eq!(failure(wanting(Some(80), &["A100"]), &Setup::default(), &with_display), None);
    // An allocation is asked for alone.
    let setup = Setup { gpu_devices: Some(vec!["3".into(), "5".into()]), ..Setup::default() };
    let picky = format!("case \"$*\" in *'-i 3,5') {TWO_A100};; *) exit 9;; esac");
    assert_eq!(failure(wanting(Some(80), &["A100"]), &setup, &picky), None);
}
