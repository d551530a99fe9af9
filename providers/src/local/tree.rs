//! Removing folders in which user code could do what it liked.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmod, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

/// Entries looked at in one go.
const MOST_ENTRIES: usize = 4096;

/// Removes a folder and everything in it, however deep, also where its owner took away his own
/// right to enter it; quiet where there is none. Links are removed, not followed. What cannot be
/// removed does not keep the rest. No process may work in it any more.
///
/// Folders below are moved up and emptied there, one after the other: neither the stack nor the
/// number of open files depends on how deep somebody has nested them.
pub(super) fn remove_tree(folder: &Path) -> io::Result<()> {
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(data) if !data.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
        Ok(_) => {}
    }
    let top = enter(CWD, folder)?;
    let mut tree = Tree { top, moved: 0 };
    let mut stuck = HashSet::new();
    let mut failure = None;
    loop {
        let entries = entries(&tree.top, &stuck)?;
        if entries.is_empty() {
            break;
        }
        for (name, kind) in entries {
            let removed = match kind {
                FileType::Directory => tree.remove_folder(&name),
                _ => unlinkat(&tree.top, &name, AtFlags::empty()).map_err(io::Error::from),
            };
            if let Err(error) = removed {
                failure.get_or_insert(error);
                stuck.insert(name);
            }
        }
    }
    failure.map_or_else(|| fs::remove_dir(folder), Err)
}

struct Tree {
    top: OwnedFd,
    moved: u64,
}

impl Tree {
    /// Removes a folder of the top one; folders in it are moved up instead.
    fn remove_folder(&mut self, name: &CStr) -> io::Result<()> {
        match unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            result => return Ok(result?),
        }
        let folder = enter(&self.top, name)?;
        loop {
            let entries = entries(&folder, &HashSet::new())?;
            if entries.is_empty() {
                break;
            }
            for (entry, kind) in entries {
                match kind {
                    FileType::Directory => self.move_up(&folder, &entry)?,
                    _ => unlinkat(&folder, &entry, AtFlags::empty())?,
                }
            }
        }
        Ok(unlinkat(&self.top, name, AtFlags::REMOVEDIR)?)
    }

    fn move_up(&mut self, folder: &OwnedFd, entry: &CStr) -> io::Result<()> {
        let target = loop {
            let name = format!(".moved-{}", self.moved);
            self.moved += 1;
            match statat(&self.top, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => {}
                Err(Errno::NOENT) => break name,
                Err(error) => return Err(error.into()),
            }
        };
        match renameat(folder, entry, &self.top, &target) {
            // A folder that is moved gets another parent: that needs the right to write in it.
            Err(Errno::ACCESS) => {
                allow(folder, entry)?;
                Ok(renameat(folder, entry, &self.top, &target)?)
            }
            result => Ok(result?),
        }
    }
}

/// Opens a folder, which is no link, so that what is in it can be removed.
fn enter<P: rustix::path::Arg + Copy>(at: impl AsFd + Copy, name: P) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Root needs no right of its own; others first take back what the owner, who they are, took away.
    if !rustix::process::geteuid().is_root() {
        let data = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if data.st_mode & 0o700 != 0o700 && FileType::from_raw_mode(data.st_mode).is_dir() {
            let _ = allow(at, name);
        }
    }
    Ok(openat(at, name, flags, Mode::empty())?)
}

/// Gives the owner of a folder every right to it. By what was opened, not by its name: that could be a link's by now.
fn allow<P: rustix::path::Arg>(at: impl AsFd, name: P) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(at, name, flags, Mode::empty())?;
    Ok(chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::RWXU)?)
}

/// Some entries of a folder without `.`, `..` and the excluded ones; none where there are no more.
fn entries(folder: &OwnedFd, without: &HashSet<CString>) -> io::Result<Vec<(CString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || without.contains(name) {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let data = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(data.st_mode)
            }
            kind => kind,
        };
        found.push((name.to_owned(), kind));
        if found.len() == MOST_ENTRIES {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_mode_of_what_a_link_names_is_not_changed() {
        let outside = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o750)).unwrap();
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), place.path().join("link")).unwrap();
        let at = enter(CWD, place.path()).unwrap();
        assert!(allow(&at, "link").is_err());
        assert_eq!(mode(outside.path()), 0o750);
        fs::create_dir(place.path().join("own")).unwrap();
        fs::set_permissions(place.path().join("own"), fs::Permissions::from_mode(0o000)).unwrap();
        allow(&at, "own").unwrap();
        assert_eq!(mode(&place.path().join("own")), 0o700);
    }

    #[test]
    fn depth_width_locks_and_links_do_not_matter() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("top");
        fs::create_dir(&top).unwrap();
        // Far more levels than a path or a process's open files could hold.
        let mut at = enter(CWD, &top).unwrap();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = enter(&at, "d").unwrap();
        }
        fs::create_dir_all(top.join("wide")).unwrap();
        for number in 0..MOST_ENTRIES + 10 {
            fs::write(top.join("wide").join(number.to_string()), "").unwrap();
        }
        fs::create_dir_all(top.join("locked/inner/most")).unwrap();
        fs::write(top.join(".moved-0"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), top.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path(), top.join("locked/inner/link")).unwrap();
        for locked in ["locked/inner/most", "locked/inner", "locked"] {
            fs::set_permissions(top.join(locked), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
        assert!(outside.path().join("kept").exists());
        remove_tree(&top).unwrap();
        // A link in its place is no folder.
        std::os::unix::fs::symlink(outside.path(), &top).unwrap();
        assert!(remove_tree(&top).is_err());
        assert!(outside.path().join("kept").exists());
    }
}
