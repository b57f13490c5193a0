//! How much memory there is.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use rustix::system::sysinfo;

/// How much memory this process may take, page cache included, in bytes: what the machine has, or less where a control
/// group that it was started in sets a limit.
pub fn memory_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let system = sysinfo();
        let machine = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit));
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        limit(Path::new("/sys/fs/cgroup"), &groups).map_or(machine, |limit| limit.min(machine))
    })
}

/// The lowest limit of these groups, as `cgroups(7)` lists them, and of those that they are in: a group can be told
/// only what the ones above it have left. What cannot be read, as in a container that does not see where its own group
/// is, sets none.
fn limit(mounted: &Path, groups: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for group in groups.lines() {
        let mut parts = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            _ => (mounted.join("memory"), "memory.limit_in_bytes"),
        };
        if controllers.is_empty() || controllers.split(',').any(|one| one == "memory") {
            let groups = Path::new(path.trim_start_matches('/')).ancestors();
            let texts =
                groups.filter_map(|group| fs::read_to_string(root.join(group).join(file)).ok());
            limits.extend(texts.filter_map(|text| text.trim().parse::<u64>().ok()));
        }
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_above_counts_in_both_versions_of_groups() {
        let mounted = tempfile::tempdir().unwrap();
        let write = |path: &str, limit: &str| {
            let path = mounted.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, limit).unwrap();
        };
        let limit = |groups: &str| limit(mounted.path(), groups);
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/memory.max", "5000\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), Some(5000));
        write("a/b/memory.max", "3000\n");
        assert_eq!(limit("0::/a/b\n"), Some(3000));
        assert_eq!(limit("0::/a\n"), Some(5000));
        write("memory/c/memory.limit_in_bytes", "4000\n");
        let first = "5:cpuset,memory:/c/d\n4:cpu:/a\n";
        assert_eq!(limit(first), Some(4000));
        assert_eq!(limit(&format!("{first}0::/a/b\n")), Some(3000));
        assert_eq!(limit("4:cpu:/c\nwhat is this\n"), None);
    }

    #[test]
    fn the_machine_has_some_memory() {
        assert!((1 << 20..1 << 60).contains(&memory_bytes()));
    }
}
