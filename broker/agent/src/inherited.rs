//! Descriptors that whoever started the server has left open.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;

/// Closes every descriptor but the three standard ones and that of `keep`. What this program opens itself is closed when it
/// becomes another one; what a shell or a supervisor has left open in the server is not, and is no program's to read.
///
/// Call it first thing in a fresh process, with no other threads and nothing else open.
pub fn close(keep: Option<&File>) {
    let keep = keep.map(File::as_raw_fd);
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for one in open {
        if one > 2 && Some(one) != keep {
            // The folder that was read is among them, and closed already.
            let _ = nix::unistd::close(one);
        }
    }
}
