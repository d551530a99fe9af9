//! Which users jobs run as on this machine.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use runwhere_providers::local::UidRange;

/// Lets the users of jobs go through the data folder on the way to their own, without seeing what
/// is in it; says so where jobs can read everything instead.
pub(super) fn make_way(users: Option<UidRange>, data_dir: &Path) -> io::Result<()> {
    let closed = data_dir.ancestors().skip(1).find(|folder| !lets_pass(folder));
    match (users, closed) {
        (None, _) => {
            if rustix::process::geteuid().is_root() {
                tracing::warn!(
                    "jobs on this machine run as root and can read the data folder: set \
                     [local] run_as_uids in config.toml"
                );
            }
            Ok(())
        }
        (Some(_), Some(closed)) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "[local] run_as_uids: other users cannot enter {}; choose another --data-dir",
                closed.display()
            ),
        )),
        (Some(_), None) => fs::set_permissions(data_dir, fs::Permissions::from_mode(0o711)),
    }
}

fn lets_pass(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|data| data.permissions().mode() & 0o001 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_folder_on_the_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let inside = folder.path().join("data");
        fs::create_dir(&inside).unwrap();
        let users = Some(UidRange { first: 20_000, count: 2 });
        let refused = make_way(users, &inside).unwrap_err().to_string();
        assert!(refused.contains(&folder.path().display().to_string()), "{refused}");
        make_way(None, &inside).unwrap();
        assert_ne!(fs::metadata(&inside).unwrap().permissions().mode() & 0o777, 0o711);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        make_way(users, &inside).unwrap();
        assert_eq!(fs::metadata(&inside).unwrap().permissions().mode() & 0o777, 0o711);
    }
}
