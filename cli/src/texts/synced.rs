//! Texts of sync.

use super::macros::texts;

texts! {
    /// The document's line after an upload.
    uploaded(files, megabytes, skipped) "✓ 上传 {files} 个文件（{megabytes} MB），跳过 {skipped} 个未变化文件" "✓ Uploaded {files} files ({megabytes} MB), skipped {skipped} unchanged files";
    /// The document's line about folders.
    storage_ready(folders) "✓ 存储路径已就绪：{folders}" "✓ Storage paths are ready: {folders}";
    /// Progress.
    hashing() "计算校验和" "Hashing";
    /// Scanning.
    scanned(files, megabytes) "扫描到 {files} 个文件（{megabytes} MB）" "Found {files} files ({megabytes} MB)";
    /// Many files.
    much_to_sync(files, megabytes) "要同步 {files} 个文件、共 {megabytes} MB，超过 20000 个文件或 1 GiB" "{files} files of {megabytes} MB altogether would be synced: more than 20,000 files or 1 GiB";
    /// Remedy for [`much_to_sync`].
    much_to_sync_hint() "把不需要的写进 .runwignore，或加 --yes 确认" "Put what is not needed into .runwignore, or confirm with --yes";
    /// A file was left out.
    skipped_file(path, reason) "跳过 {path}：{reason}" "Left out {path}: {reason}";
    /// Further ones.
    skipped_more(count) "另有 {count} 个被跳过（-v 查看全部）" "{count} more were left out (-v shows all)";
    /// Reason: broken link.
    skip_broken_link() "符号链接的目标不存在" "the target of the symbolic link does not exist";
    /// Reason: link that leaves.
    skip_outside() "符号链接指向同步目录之外" "the symbolic link leaves the sync folder";
    /// Reason: linked directory.
    skip_linked_folder() "不进入符号链接的目录" "symbolic links to folders are not followed";
    /// Reason: FIFO, socket, device.
    skip_special() "不是普通文件" "it is no regular file";
    /// Reason: name.
    skip_name() "文件名不是 UTF-8 或含有控制字符、反斜杠" "its name is not UTF-8, or holds control characters or a backslash";
    /// Reason: unreadable.
    skip_unreadable(error) "无法读取（{error}）" "it cannot be read ({error})";
    /// A workdir leaves the root.
    workdir_outside(path) "storage.workdirs 的 '{path}' 不在当前目录之内" "'{path}' of storage.workdirs is not below the current folder";
    /// A workdir is missing.
    workdir_missing(path) "storage.workdirs 的 '{path}' 不存在或不是目录" "'{path}' of storage.workdirs does not exist or is no folder";
    /// Remedy for both.
    workdir_hint() "在项目根目录执行，或修改 YAML 的 storage.workdirs" "Run this in the project's root folder, or change storage.workdirs in the YAML";
    /// The rules file is wrong.
    runwignore_invalid(reason) ".runwignore 无效：{reason}" ".runwignore is not valid: {reason}";
    /// A file changes.
    file_changing(path) "文件在读取时被修改：{path}" "A file changes while it is read: {path}";
    /// Remedy for [`file_changing`].
    file_changing_hint() "等程序写完再同步，或把它写进 .runwignore" "Sync again once it is written, or put it into .runwignore";
    /// A file that cannot be read.
    file_lost(path, error) "无法读取 {path}（{error}）" "{path} cannot be read ({error})";
    /// The server wants something else.
    foreign_path(path) "服务器索要不在清单中的文件 '{path}'，已拒绝" "The server asked for '{path}', which is not in the manifest; refused";
    /// Remedy for [`foreign_path`].
    foreign_path_hint() "不要信任这台服务器，检查地址" "Do not trust this server; check its address";
    /// An upload failed.
    upload_failed(path, reason) "上传 {path} 失败：{reason}" "Uploading {path} failed: {reason}";
    /// Remedy for [`upload_failed`].
    upload_failed_hint() "重新执行 runwhere sync：已上传的文件不会重传" "Run runwhere sync again: what is uploaded already is not sent again";
    /// Nothing was synced yet.
    never_synced() "还没有同步过" "Nothing was synced yet";
    /// Remedy for [`never_synced`].
    never_synced_hint(file) "先执行 runwhere sync -f {file}" "Run runwhere sync -f {file} first";
    /// Local changes.
    local_changes(added, changed, removed) "本地代码自上次 sync 后有变化：新增 {added}，修改 {changed}，删除 {removed}" "The local code changed since the last sync: {added} new, {changed} changed, {removed} removed";
    /// Before the first sync of this folder.
    local_never_synced() "这个任务还没有同步过本地代码" "The local code of this task was never synced";
    /// Status line.
    sync_status_id(id) "✓ 同步: {id}" "✓ Sync: {id}";
    /// Status line.
    sync_status_env(status) "  环境: {status}" "  Environment: {status}";
    /// Status line.
    sync_status_created(at) "  时间: {at}" "  Time: {at}";
    /// Status line.
    sync_status_model(model, status, progress) "  模型: {model} {status} {progress}" "  Model: {model} {status} {progress}";
    /// Dry run.
    dry_run(files, megabytes) "将同步 {files} 个文件（{megabytes} MB），未上传" "{files} files ({megabytes} MB) would be synced; nothing was uploaded";
    /// Environment is prepared.
    env_status(status) "→ 环境状态：{status}" "→ Environment: {status}";
    /// The stored record cannot be written.
    record_unwritable(path, error) "无法写入 {path}（{error}），下次会重新计算" "Cannot write {path} ({error}); it will be computed again next time";
    /// A file is too large.
    file_too_large(path) "文件超过 1 GiB：{path}" "The file has more than 1 GiB: {path}";
    /// Remedy for [`file_too_large`].
    file_too_large_hint() "拆分文件，或把它写进 .runwignore" "Split it, or put it into .runwignore";
}
