//! Settings of a kernel that spoil a run.

use strowger_lab::doctor::{Finding, Grade, Kernel, kernel, worst};

const RIGHT: [(&str, &str); 11] = [
    ("proc/sys/net/core/rmem_max", "4194304\n"),
    ("proc/sys/net/core/wmem_max", "4194304\n"),
    ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
    ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
    (
        "proc/self/limits",
        "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n",
    ),
    ("proc/meminfo", "MemTotal: 100 kB\nSwapTotal: 2048 kB\nSwapFree: 2048 kB\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
    ("proc/self/cgroup", "5:cpu,cpuacct:/one\n0::/two/three\n"),
    ("proc/sys/net/netfilter/nf_conntrack_max", "262144\n"),
];

/// Examines a kernel with these files changed.
fn examined(changes: &[(&str, &str)]) -> Vec<Finding> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in RIGHT.iter().chain(changes) {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().expect("it has a folder")).expect("it can be made");
        std::fs::write(&file, text).expect("it can be written");
    }
    let places = Kernel { proc: folder.path().join("proc"), sys: folder.path().join("sys") };
    let mut findings = kernel(&places);
    // The number of cores is that of the machine of this test.
    findings.retain(|finding| finding.subject != "cores");
    findings
}

#[test]
fn right_settings_are_good_and_each_wrong_one_has_its_cure() {
    let good = examined(&[]);
    assert_eq!(worst(&good), Grade::Good, "{good:?}");
    assert_eq!(good.len(), 10);
    let cases = [
        (
            "proc/sys/net/core/rmem_max",
            "212992",
            "net.core.rmem_max",
            Grade::Bad,
            "sysctl -w net.core.rmem_max=4194304",
        ),
        (
            "proc/sys/net/core/wmem_max",
            "212992",
            "net.core.wmem_max",
            Grade::Bad,
            "sysctl -w net.core.wmem_max=4194304",
        ),
        ("proc/sys/net/core/netdev_max_backlog", "300", "net.core.netdev_max_backlog", Grade::Notice, "=1000"),
        (
            "proc/sys/net/ipv4/ip_local_port_range",
            "50000 60999",
            "net.ipv4.ip_local_port_range",
            Grade::Notice,
            "sysctl",
        ),
        ("proc/self/limits", "Max open files 1024 4096 files", "descriptors of a process", Grade::Notice, "ulimit -Hn"),
        ("proc/meminfo", "SwapTotal: 9000 kB\nSwapFree: 10 kB\n", "vm.swappiness", Grade::Notice, "vm.swappiness=1"),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never",
            "transparent huge pages",
            Grade::Notice,
            "madvise",
        ),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave",
            "CPU frequency governor",
            Grade::Notice,
            "-g performance",
        ),
        ("sys/fs/cgroup/two/cpu.max", "50000 100000", "CPU quota", Grade::Bad, "cpu.max"),
        ("sys/fs/cgroup/two/three/cpu.max", "max 100000", "CPU quota", Grade::Good, ""),
        ("proc/sys/net/netfilter/nf_conntrack_max", "8192", "connection tracking", Grade::Bad, "=262144"),
        ("proc/sys/net/netfilter/nf_conntrack_count", "200000", "connection tracking", Grade::Bad, "=1048576"),
    ];
    for (file, text, subject, grade, cure) in cases {
        let findings = examined(&[(file, text)]);
        let finding = findings.iter().find(|finding| finding.subject == subject).expect("it is examined");
        assert!(finding.grade == grade && finding.cure.contains(cure), "{file}: {finding:?}");
        assert_eq!(worst(&findings), grade, "{file}: {findings:?}");
    }
    let old =
        [("sys/fs/cgroup/cpu/one/cpu.cfs_quota_us", "150000"), ("sys/fs/cgroup/cpu/one/cpu.cfs_period_us", "100000")];
    let findings = examined(&old);
    let quota = findings.iter().find(|finding| finding.subject == "CPU quota").expect("it is examined");
    assert_eq!(quota.found, "1.50 cores");
    let none =
        [("sys/fs/cgroup/cpu/one/cpu.cfs_quota_us", "-1"), ("sys/fs/cgroup/cpu/one/cpu.cfs_period_us", "100000")];
    assert_eq!(worst(&examined(&none)), Grade::Good);
}

/// Checks a machine without these files, which a container may be.
#[test]
fn a_kernel_without_files_is_no_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let findings = kernel(&Kernel { proc: folder.path().into(), sys: folder.path().into() });
    assert!(findings.iter().all(|finding| ["cores", "CPU quota"].contains(&finding.subject.as_str())), "{findings:?}");
}
