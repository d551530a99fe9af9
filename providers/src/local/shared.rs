//! Folders that every user may write into: what a user of its own leaves there goes with it.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, statat, unlinkat};

use super::tree::remove_tree;

/// Where programs put what they share.
const FOLDERS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Entries looked at in each, at most: others may have filled it.
const MOST_ENTRIES: usize = 1_000_000;

/// Removes what a user owns directly in the shared folders. None of its programs may run any more.
pub(super) fn clear(uid: u32) {
    for folder in FOLDERS {
        match clear_folder(Path::new(folder), uid) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(folder, uid, %error, "cannot remove all that a job has left");
            }
            Ok(()) => {}
        }
    }
}

/// Links are removed, not followed.
fn clear_folder(folder: &Path, uid: u32) -> io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode();
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        // Others could put something else in the place of an entry meanwhile.
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it has no sticky bit"));
    }
    let opened = File::open(folder)?;
    let mut left = Vec::new();
    for entry in Dir::read_from(&opened)?.take(MOST_ENTRIES) {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // Gone meanwhile, or not for us to see.
        let Ok(data) = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if data.st_uid == uid {
            left.push((name.to_owned(), FileType::from_raw_mode(data.st_mode).is_dir()));
        }
    }
    let mut result = Ok(());
    for (name, is_folder) in left {
        let removed = match is_folder {
            true => remove_tree(&folder.join(std::ffi::OsStr::from_bytes(name.to_bytes()))),
            false => unlinkat(&opened, &name, AtFlags::empty()).map_err(io::Error::from),
        };
        result = result.and(removed);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_user_owns_goes_and_no_link_is_followed() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped only_what_a_user_owns_goes_and_no_link_is_followed: needs root");
            return;
        }
        let own = |path: &Path| std::os::unix::fs::lchown(path, Some(391_200), None).unwrap();
        let place = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("folder/below")).unwrap();
        fs::write(at("folder/below/file"), "").unwrap();
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), at("link")).unwrap();
        for name in ["folder", "file", "link"] {
            own(&at(name));
        }
        // Somebody else's, and what this user has within it.
        fs::create_dir(at("theirs")).unwrap();
        fs::write(at("theirs/file"), "").unwrap();
        own(&at("theirs/file"));
        let permit = |mode| {
            fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        permit(0o777);
        assert!(clear_folder(place.path(), 391_200).is_err());
        permit(0o1777);
        clear_folder(place.path(), 391_200).unwrap();
        let left: Vec<_> =
            fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["theirs"]);
        assert!(at("theirs/file").exists() && outside.path().join("kept").exists());
        assert!(clear_folder(&at("none"), 391_200).is_err());
    }
}
