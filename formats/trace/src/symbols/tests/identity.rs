//! A file names a frame only if it is the recorded one, by build ID, otherwise by inode, otherwise by age.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use super::*;

/// Names of `outer` in a module, and whether they are verified.
fn outer_of(request: Request<'_>, options: Options, origin: Origin) -> (Option<String>, Report) {
    let mut symbolizer = Symbolizer::new(options, KernelFacts::default(), origin).unwrap();
    let names = symbolizer.names(&[request]).remove(0);
    let name = names.first().map(|name| match name.is_unverified {
        true => format!("{} unverified", name.function),
        false => name.function.clone(),
    });
    (name, symbolizer.report().clone())
}

fn reason(report: &Report) -> String {
    let unnamed = report.unnamed();
    unnamed
        .first()
        .map_or_else(String::new, |first| first.reason.to_owned())
}

fn identity_of(path: &Path) -> FileIdentity {
    let metadata = fs::metadata(path).unwrap();
    FileIdentity {
        device: (libc::major(metadata.dev()), libc::minor(metadata.dev())),
        inode: metadata.ino(),
    }
}

/// A recording that began a few seconds after the program was built, or before.
fn began(seconds: i64) -> Origin {
    let mut origin = now();
    origin.wall_offset = origin
        .wall_offset
        .map(|wall| wall + seconds * 1_000_000_000);
    origin
}

#[test]
fn removed_program_is_not_named_by_its_successor() {
    let Some(built) = Built::new(&[]) else { return };
    let (outer, _) = built.function("outer");
    let path = built.program();
    let id = Elf::open(&path).unwrap().build_id().unwrap().to_vec();
    let deleted = format!("{} (deleted)", path.display());
    let request = user_request(&deleted, outer, false);
    let (name, report) = outer_of(request, Options::default(), began(1000));
    assert_eq!(name, None);
    assert!(
        reason(&report).contains("removed or replaced"),
        "{report:?}"
    );
    // Removed and reinstalled: the same build.
    let same = Request {
        build_id: Some(&id),
        ..request
    };
    let (name, _) = outer_of(same, Options::default(), Origin::default());
    assert_eq!(name.as_deref(), Some("outer"));
    let other = Request {
        build_id: Some(&[7; 20]),
        ..request
    };
    let (name, report) = outer_of(other, Options::default(), began(1000));
    assert_eq!(name, None);
    assert!(reason(&report).contains("build id"), "{report:?}");
}

#[test]
fn without_a_build_id_the_age_decides() {
    let Some(built) = Built::new(&[]) else { return };
    let (outer, _) = built.function("outer");
    let path = built.program();
    let request = user_request(path.to_str().unwrap(), outer, false);
    let (name, report) = outer_of(request, Options::default(), began(60));
    assert_eq!(name.as_deref(), Some("outer unverified"));
    let unverified: Vec<_> = report.unverified().collect();
    assert_eq!(unverified, [(path.to_str().unwrap(), 1)]);

    let (name, report) = outer_of(request, Options::default(), began(-60));
    assert_eq!(name, None, "created later");
    assert!(reason(&report).contains("changed after"), "{report:?}");
    let (name, _) = outer_of(request, Options::default(), Origin::default());
    assert_eq!(name, None, "time of mapping unknown");
    let elsewhere = Origin {
        host: Some("another host".into()),
        ..began(60)
    };
    let (name, report) = outer_of(request, Options::default(), elsewhere);
    assert_eq!(name, None);
    assert!(reason(&report).contains("another host"), "{report:?}");

    // The user states that it is the one.
    let given = Options {
        directories: vec![built.folder.path().to_owned()],
        ..Options::default()
    };
    let (name, _) = outer_of(request, given, began(-60));
    assert_eq!(name.as_deref(), Some("outer unverified"));

    // Renamed to its path later, with an old mtime.
    let hour = SystemTime::now() - Duration::from_secs(3600);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(hour).unwrap();
    let (name, _) = outer_of(request, Options::default(), began(-60));
    assert_eq!(name, None);
}

#[test]
fn without_a_build_id_the_inode_decides() {
    let Some(built) = Built::new(&["-Wl,--build-id=none"]) else {
        return;
    };
    let (outer, _) = built.function("outer");
    let path = built.program();
    let identity = identity_of(&path);
    let mapped_at = |seconds: i64| Request {
        file: Some(identity),
        first_mapped: Some(seconds * 1_000_000_000),
        ..user_request(path.to_str().unwrap(), outer, false)
    };
    // The recording began before the program was built: the time of its mapping counts.
    let (name, report) = outer_of(mapped_at(70), Options::default(), began(-60));
    assert_eq!(name.as_deref(), Some("outer"));
    assert_eq!(report.unverified().len(), 0);
    let (name, report) = outer_of(mapped_at(10), Options::default(), began(-60));
    assert_eq!(name, None, "inode number reused");
    assert!(reason(&report).contains("created later"), "{report:?}");

    let other = Request {
        file: Some(FileIdentity {
            inode: identity.inode + 1,
            ..identity
        }),
        ..mapped_at(70)
    };
    let (name, report) = outer_of(other, Options::default(), began(-60));
    assert_eq!(name, None);
    assert!(reason(&report).contains("another file"), "{report:?}");

    // Overwritten in place.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(600))
        .unwrap();
    let (name, report) = outer_of(mapped_at(70), Options::default(), began(-60));
    assert_eq!(name, None);
    assert!(
        reason(&report).contains("contents were changed"),
        "{report:?}"
    );
}

#[test]
fn unlinked_file_held_open_is_used() {
    let Some(built) = Built::new(&[]) else { return };
    let (outer, _) = built.function("outer");
    let path = built.program();
    let identity = identity_of(&path);
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let options = Options::default();
    options.roots.add_file(identity, None, file);
    let deleted = format!("{} (deleted)", path.display());
    let request = Request {
        file: Some(identity),
        ..user_request(&deleted, outer, false)
    };
    let (name, _) = outer_of(request, options.clone(), Origin::default());
    assert_eq!(name.as_deref(), Some("outer"));
    let other = Request {
        build_id: Some(&[7; 20]),
        ..request
    };
    let (name, _) = outer_of(other, options, Origin::default());
    assert_eq!(name, None);
}

/// `restore` is the return address of a signal handler, as in the C library: no call precedes it, and a byte without a
/// name is before it.
#[test]
fn the_return_address_of_a_signal_handler_has_a_name() {
    let Some(built) = Built::new(&[]) else { return };
    let code = ".text\n.globl before\n.type before,@function\nbefore: ret\n.size before,.-before\n nop\n\
                .globl restore\n.type restore,@function\nrestore: ret\n.size restore,.-restore\n\
                .globl main\nmain: ret\n.section .note.GNU-stack,\"\",@progbits\n";
    fs::write(built.folder.path().join("program.s"), code).unwrap();
    if !built.run("cc", &["-o", "program", "program.s"]) {
        return;
    }
    let (restore, _) = built.function("restore");
    let names = built.names(Options::default(), restore, true);
    assert_eq!(as_printed(&names).as_deref(), Some("restore+0x0"));
    let (before, _) = built.function("before");
    let names = built.names(Options::default(), before + 1, true);
    assert_eq!(as_printed(&names).as_deref(), Some("before+0x1"));
    assert_eq!(built.names(Options::default(), before + 1, false), []);
}

#[test]
fn symbol_list_of_another_kernel_requires_an_option() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("System.map");
    fs::write(&list, SYSTEM_MAP).unwrap();
    let mut recorded = facts(0xffff_ffff_8100_0000);
    recorded.build_id = Some(vec![7; 20]);
    let given = Options {
        directories: vec![folder.path().to_owned()],
        ..Options::default()
    };
    let mut symbolizer = new_symbolizer(given.clone(), recorded.clone());
    let names = symbolizer.names(&[kernel_request(0xffff_ffff_8100_0123, KERNEL)]);
    assert_eq!(as_printed(&names[0]).as_deref(), Some("vfs_read+0x23"));
    assert!(
        names[0][0].is_unverified,
        "a list does not prove its kernel"
    );
    // By the build ID, in perf's cache.
    let place = folder
        .path()
        .join(format!(".build-id/07/{}", "07".repeat(19)));
    fs::create_dir_all(&place).unwrap();
    fs::write(
        place.join("kallsyms"),
        SYSTEM_MAP.replace("vfs_read", "proven"),
    )
    .unwrap();
    let mut symbolizer = new_symbolizer(given, recorded.clone());
    let names = symbolizer.names(&[kernel_request(0xffff_ffff_8100_0123, KERNEL)]);
    assert_eq!(as_printed(&names[0]).as_deref(), Some("proven+0x23"));
    assert!(!names[0][0].is_unverified);
    // A list without the kernel's address.
    recorded.reference = Some(("_stext".into(), 0xffff_ffff_9300_0000));
    let options = Options {
        kernel: KernelSource::Kallsyms(list),
        ..Options::default()
    };
    let error = Symbolizer::new(options, recorded, now()).err().unwrap();
    assert!(error.to_string().contains("no symbol _stext"), "{error}");
}

#[test]
fn vmlinux_without_a_build_id_is_not_used() {
    let Some(built) = Built::new(&["-no-pie", "-Wl,--build-id=none"]) else {
        return;
    };
    let mut options = Options::default();
    options.add(&built.program()).unwrap();
    let recorded = KernelFacts {
        build_id: Some(vec![7; 20]),
        ..KernelFacts::default()
    };
    let error = Symbolizer::new(options, recorded, now()).err().unwrap();
    assert!(
        error.to_string().contains("its build id is none"),
        "{error}"
    );
}

#[test]
fn jit_list_of_an_earlier_process_is_not_used() {
    // No process has this PID: the largest is 2^22.
    let pid = 1_000_000_000 + std::process::id().cast_signed();
    let module = format!("/tmp/perf-{pid}.map");
    fs::write(&module, "1000 100 parse\n").unwrap();
    let request = |first_mapped| Request {
        module: Some(&module),
        address: Some(0x1010),
        first_mapped,
        ..Request::default()
    };
    let is_foreign = Origin {
        host: Some("elsewhere".into()),
        ..now()
    };
    let second = 1_000_000_000;
    let found = [
        // Mapped before the recording, while the list is written, a minute later; on another host.
        outer_of(request(None), Options::default(), now()),
        outer_of(request(Some(0)), Options::default(), now()),
        outer_of(request(Some(60 * second)), Options::default(), now()),
        outer_of(request(None), Options::default(), is_foreign.clone()),
    ];
    let given = Options {
        directories: vec!["/tmp".into()],
        ..Options::default()
    };
    let (given, _) = outer_of(request(Some(60 * second)), given, is_foreign);
    fs::remove_file(&module).unwrap();
    let names = found.each_ref().map(|(name, _)| name.as_deref());
    assert_eq!(names, [Some("parse"), Some("parse"), None, None]);
    assert!(reason(&found[2].1).contains("older than the process"));
    assert!(reason(&found[3].1).contains("another host"));
    assert_eq!(given.as_deref(), Some("parse"));
}
