//! A user's project folder, and programs that a test can steer.

use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A program that says what the documents' sample says, then works until the test lets it go.
///
/// It keeps `$CONTROL/copy`, its own copy of everything that it printed, and `$CONTROL/started`; it ends when
/// `$CONTROL/go` appears, with the exit code in that file; its last act is `$CONTROL/ended`. `$CONTROL/starts` has a
/// character for each time that it was started.
pub const STEADY_PROGRAM: &str = r#"
say() { printf '%s\n' "$1" | tee -a "$CONTROL/copy"; }
printf . >>"$CONTROL/starts"
say 'Epoch 1/10, step 100, loss=2.341'
: >"$CONTROL/started"
while [ ! -e "$CONTROL/go" ]; do sleep 0.05; done
: >"$CONTROL/ended"
exit "$(cat "$CONTROL/go")"
"#;

/// A folder with a task YAML and a program.
#[derive(Debug)]
pub struct Project {
    folder: TempDir,
    control: Control,
    name: String,
}

impl Project {
    /// A project of two files, `train.yaml` and `train.sh`, for a task called `name` that runs `program` with `sh`.
    pub fn new(name: &str, program: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("runwhere-project-")
            .tempdir()
            .expect("a temporary folder");
        let control = Control::new();
        let project = Project { folder, control, name: name.to_owned() };
        project.write("train.sh", program);
        project.write("train.yaml", &project.yaml());
        project
    }

    /// The task file's text.
    pub fn yaml(&self) -> String {
        format!(
            "version: v1\nkind: Training\njob:\n  name: {}\nenvironment:\n  command: [\"sh\", \"train.sh\"]\n  env:\n    \
             CONTROL: {}\nresources:\n  gpuNum: 1\n  gpuType: a100-80g\nstorage:\n  workdirs:\n    - path: \".\"\n  \
             checkpoint:\n    path: checkpoints/\n",
            self.name,
            self.control.path().display(),
        )
    }

    /// Writes one file.
    pub fn write(&self, path: &str, content: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("is inside the project")).expect("a folder");
        fs::write(path, content).expect("a file");
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The task's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the test and the program share.
    pub fn control(&self) -> &Control {
        &self.control
    }
}

/// A folder through which a test steers a program, which may run under any user's id.
#[derive(Debug)]
pub struct Control {
    folder: TempDir,
}

impl Control {
    /// An empty one.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::Builder::new()
            .prefix("runwhere-control-")
            .tempdir()
            .expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))
            .expect("the folder is ours");
        Control { folder }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The text of a file in it, if it is there.
    pub fn read(&self, name: &str) -> Option<String> {
        fs::read(self.file(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until the program has started.
    #[track_caller]
    pub fn wait_started(&self) {
        crate::eventually("the program starts", || self.read("started"));
    }

    /// Lets the program end with `code`.
    pub fn go(&self, code: u8) {
        // Renamed into place, so that the program never reads half a file.
        fs::write(self.file("go.new"), code.to_string()).expect("a file");
        fs::rename(self.file("go.new"), self.file("go")).expect("a file");
    }

    /// Removes everything, for the next run.
    pub fn clear(&self) {
        for entry in fs::read_dir(self.path()).expect("the folder is ours").flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}
