//! The data folder's disk is full: nothing acknowledged is lost, and it goes on once there is space. Needs root.

use runwhere_tests::{Project, STEADY_PROGRAM, Server, ServerOptions, eventually};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A file system of 64 MB and 2000 files, unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("runwhere-disk-")
            .tempdir()
            .expect("a temporary folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64m,nr_inodes=2000,mode=755", "runwhere-tests"])
            .arg(folder.path())
            .status();
        assert!(mounted.is_ok_and(|status| status.success()), "cannot mount a tmpfs: needs root");
        SmallDisk(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all space that is left.
    fn fill(&self) -> PathBuf {
        let path = self.path().join("ballast");
        let mut file = File::create(&path).expect("a file");
        for size in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl SmallDisk {
    /// Makes empty files until there can be no more.
    fn fill_with_names(&self) -> PathBuf {
        let folder = self.path().join("names");
        std::fs::create_dir(&folder).expect("a folder");
        let mut number = 0;
        while File::create(folder.join(number.to_string())).is_ok() {
            number += 1;
        }
        assert!(number > 100, "the disk was full already");
        folder
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is just dying may still hold it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Prints a line each 20 ms until it is let go, and keeps its own copy elsewhere.
const COUNTING_PROGRAM: &str = r#"
: >"$CONTROL/started"
i=0
while [ ! -e "$CONTROL/go" ]; do
    i=$((i + 1))
    printf 'line %s\n' "$i" | tee -a "$CONTROL/copy"
    sleep 0.02
done
"#;

const LATE: &[u8] = b"late\n";
/// The hash of [`LATE`].
const LATE_HASH: &str = "sha256:f152945b358aa26a9e72e25381deff94e254c547089bd690dccd218e9414d148";

#[test]
fn disk_full_loses_nothing_and_recovers() {
    let disk = SmallDisk::new();
    // Declared after the disk, so that it is gone before the disk is.
    let server = Server::start_with(ServerOptions {
        data_dir: Some(disk.path().join("data")),
        ..ServerOptions::default()
    });
    let api = server.api();
    let project = Project::new("counts", COUNTING_PROGRAM);
    let yaml = project.yaml();
    api.sync(
        "counts",
        &yaml,
        &[("train.sh", COUNTING_PROGRAM.as_bytes()), ("train.yaml", yaml.as_bytes())],
    );
    let id = api.submit(&yaml);
    eventually("lines arrive", || (api.program_lines(&id).len() > 20).then_some(()));

    let next = Project::new("comes-later", STEADY_PROGRAM);
    let next_yaml = next.yaml();
    api.sync(
        "comes-later",
        &next_yaml,
        &[("train.sh", STEADY_PROGRAM.as_bytes()), ("train.yaml", next_yaml.as_bytes())],
    );

    let ballast = disk.fill();
    let refused = eventually("a new submit is refused", || {
        let reply = api.try_submit(&next_yaml, &[]);
        (reply.status != 200).then_some(reply)
    });
    assert!(
        refused.body.to_string().contains("storage_full"),
        "{} {}",
        refused.status,
        refused.body
    );
    assert_eq!(refused.status, 507, "{}", refused.body);
    let late = json!({"job_name": "late", "files": [{"path": "a", "hash": LATE_HASH, "size": LATE.len()}]});
    let late = api.post("/api/v1/sync/diff", &late).expect(200);
    let address = late["files_to_upload"][0]["presigned_url"].as_str().expect("an address");
    let refused = api.send("PUT", address, &[], Some(LATE.to_vec()));
    assert_eq!(refused.status, 507, "{}", refused.body);
    // Reading still works, and the full disk is no reason to end a task.
    let seen = api.program_lines(&id);
    assert_eq!(api.job(&id)["status"], "running");
    assert_eq!(api.get("/readyz").status, 503, "a server that cannot write is not ready");

    std::fs::remove_file(ballast).expect("the ballast is ours");
    eventually("lines arrive again", || (api.program_lines(&id).len() > seen.len()).then_some(()));
    eventually("the server is ready again", || (api.get("/readyz").status == 200).then_some(()));
    let later = eventually("a new submit is accepted", || {
        let reply = api.try_submit(&next_yaml, &[]);
        (reply.status == 200).then_some(reply)
    });
    next.control().wait_started();
    next.control().go(0);
    let later = later.body["job_id"].as_str().expect("an id").to_owned();
    assert_eq!(api.wait_end(&later)["status"], "succeeded");

    project.control().go(0);
    assert_eq!(api.wait_end(&id)["status"], "succeeded");
    api.wait_released(&id);
    let stored = api.program_lines(&id);
    assert_eq!(stored[..seen.len()], seen[..], "a line that was shown is gone");
    let copy = project.control().read("copy").expect("the program's own copy");
    assert_eq!(stored.join("\n") + "\n", copy);
}

#[test]
fn disk_full_of_files_is_full_too() {
    let disk = SmallDisk::new();
    let server = Server::start_with(ServerOptions {
        data_dir: Some(disk.path().join("data")),
        ..ServerOptions::default()
    });
    let api = server.api();
    let project = Project::new("no-names", STEADY_PROGRAM);
    let yaml = project.yaml();
    api.sync(
        "no-names",
        &yaml,
        &[("train.sh", STEADY_PROGRAM.as_bytes()), ("train.yaml", yaml.as_bytes())],
    );
    let names = disk.fill_with_names();
    let refused = api.try_submit(&yaml, &[]);
    assert_eq!(refused.status, 507, "{}", refused.body);
    assert_eq!(api.get("/readyz").status, 503, "a server that cannot write is not ready");
    std::fs::remove_dir_all(names).expect("they are ours");
    let id = api.submit(&yaml);
    project.control().wait_started();
    project.control().go(0);
    assert_eq!(api.wait_end(&id)["status"], "succeeded");
    api.wait_released(&id);
}
