//! `--container`: the cgroup of a container or of a unit of systemd, by its name or the beginning of its ID.
//!
//! ```text
//! system.slice/docker-4f1d….scope            docker with systemd; its name: /var/lib/docker/containers/4f1d…/config.v2.json
//! docker/4f1d…                               docker without
//! machine.slice/libpod-9c2e….scope           podman; its name: …/overlay-containers/containers.json
//! kubepods.slice/…/cri-containerd-77aa….scope   containerd, CRI-O (crio-)
//! lxc.payload.web   machine-web.scope   system.slice/nginx.service
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use perfquet_cli::nearest;
use serde_json::Value;

use crate::failure::{Failure, misuse};

/// Where docker has a directory per container.
const DOCKER: &str = "var/lib/docker/containers";
/// Where podman lists the containers of root.
const PODMAN: &str = "var/lib/containers/storage/overlay-containers/containers.json";
/// What container managers put before the ID.
const PREFIXES: [&str; 5] = ["docker-", "libpod-", "cri-containerd-", "crio-", "nerdctl-"];
/// What container managers put before the name.
const NAME_PREFIXES: [&str; 4] = ["lxc.payload.", "lxc.", "machine-", "systemd-nspawn@"];
/// Length of an ID, in hexadecimal digits.
const ID_LENGTH: usize = 64;
/// Minimum length of the beginning of an ID.
const LEAST_ID: usize = 4;
/// Maximum number of cgroups in a hint.
const MOST_LISTED: usize = 6;

/// A container or unit that runs.
#[derive(Debug, PartialEq, Eq)]
struct Container<'a> {
    /// Path of its cgroup.
    path: &'a str,
    id: Option<&'a str>,
    names: Vec<String>,
}

/// Returns the path of the cgroup among `cgroups` that belongs to the container or unit `wanted`. `root` is `/`.
pub(crate) fn cgroup_of(wanted: &str, cgroups: &[String], root: &Path) -> Result<String, Failure> {
    let known = names_of_ids(root);
    let running: Vec<Container<'_>> = cgroups
        .iter()
        .filter_map(|path| container(path, &known))
        .collect();
    let named = running
        .iter()
        .filter(|one| one.names.iter().any(|name| name == wanted));
    let mut found: Vec<&Container<'_>> = named.collect();
    if found.is_empty() && wanted.len() >= LEAST_ID {
        let has_id = |one: &&Container<'_>| one.id.is_some_and(|id| id.starts_with(wanted));
        found = running.iter().filter(has_id).collect();
    }
    match &found[..] {
        [one] => Ok(one.path.to_owned()),
        [] => Err(unknown(wanted, &running)),
        several => {
            let mut paths: Vec<&str> = several.iter().map(|one| one.path).collect();
            paths.truncate(MOST_LISTED);
            let count = several.len();
            Err(
                misuse(format!("--container {wanted}: {count} cgroups match"))
                    .hint(format!("use one of: -G {}", paths.join(", -G "))),
            )
        }
    }
}

fn unknown(wanted: &str, running: &[Container<'_>]) -> Failure {
    let names: BTreeSet<String> = running.iter().flat_map(|one| one.names.clone()).collect();
    let near = nearest(wanted, names);
    let hint = match (near.is_empty(), running.is_empty()) {
        (false, _) => format!("use {}", near.join(", ")),
        (true, true) => "no containers or units have cgroups here; use -G PATH".to_owned(),
        (true, false) => {
            "use the name or ID that the container manager lists, or -G PATH".to_owned()
        }
    };
    misuse(format!(
        "--container {wanted}: no running container or unit has this name or ID"
    ))
    .hint(hint)
}

/// Recognizes the cgroup of a container or unit by the last part of its path.
fn container<'a>(path: &'a str, known: &[(String, String)]) -> Option<Container<'a>> {
    let last = path.rsplit('/').next()?;
    let bare = last.strip_suffix(".scope").unwrap_or(last);
    let id = PREFIXES
        .iter()
        .find_map(|prefix| bare.strip_prefix(prefix))
        .unwrap_or(bare);
    let is_id = id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id {
        let names = known.iter().filter(|(known, _)| known == id);
        return Some(Container {
            path,
            id: Some(id),
            names: names.map(|(_, name)| name.clone()).collect(),
        });
    }
    let unit = last.strip_suffix(".service");
    let machine = NAME_PREFIXES
        .iter()
        .find_map(|prefix| unit.unwrap_or(bare).strip_prefix(prefix))
        .map(unescaped);
    let names: Vec<String> = match (machine, unit) {
        (Some(name), unit) => [Some(name), unit.map(|_| last.to_owned())]
            .into_iter()
            .flatten()
            .collect(),
        (None, Some(unit)) => vec![unescaped(unit), last.to_owned()],
        (None, None) => return None,
    };
    Some(Container {
        path,
        id: None,
        names,
    })
}

/// Undoes the escapes of systemd: `my\x2dweb` is my-web.
fn unescaped(name: &str) -> String {
    let mut text = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\\x") {
        text.push_str(before);
        let code = after
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                text.push(code.into());
                rest = &after[2..];
            }
            None => {
                text.push_str("\\x");
                rest = after;
            }
        }
    }
    text + rest
}

/// Returns IDs with their names, as docker and podman keep them.
fn names_of_ids(root: &Path) -> Vec<(String, String)> {
    let mut known = Vec::new();
    for entry in fs::read_dir(root.join(DOCKER))
        .into_iter()
        .flatten()
        .flatten()
    {
        let config = fs::read(entry.path().join("config.v2.json")).unwrap_or_default();
        let config: Value = serde_json::from_slice(&config).unwrap_or_default();
        let id = entry.file_name().into_string();
        if let (Ok(id), Some(name)) = (id, config["Name"].as_str()) {
            known.push((id, name.trim_start_matches('/').to_owned()));
        }
    }
    let list = fs::read(root.join(PODMAN)).unwrap_or_default();
    let list: Value = serde_json::from_slice(&list).unwrap_or_default();
    for one in list.as_array().into_iter().flatten() {
        let names = one["names"].as_array().into_iter().flatten();
        for name in names.filter_map(Value::as_str) {
            let id = one["id"].as_str().unwrap_or_default();
            known.push((id.to_owned(), name.to_owned()));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> String {
        digit.to_string().repeat(ID_LENGTH)
    }

    #[test]
    fn containers_and_units() {
        let root = tempfile::tempdir().unwrap();
        let docker = root.path().join(DOCKER).join(id('a'));
        fs::create_dir_all(&docker).unwrap();
        fs::write(docker.join("config.v2.json"), r#"{"Name":"/web","ID":"x"}"#).unwrap();
        let podman = root.path().join(PODMAN);
        fs::create_dir_all(podman.parent().unwrap()).unwrap();
        let list = format!(r#"[{{"id":"{}","names":["db"]}}]"#, id('b'));
        fs::write(podman, list).unwrap();
        let (a, b, c, d) = (id('a'), id('b'), id('c'), id('d'));
        let cgroups = [
            "system.slice".to_owned(),
            format!("system.slice/docker-{a}.scope"),
            format!("machine.slice/libpod-{b}.scope"),
            format!("machine.slice/libpod-{b}.scope/container"),
            format!("machine.slice/libpod-conmon-{b}.scope"),
            format!("kubepods.slice/pod7/cri-containerd-{c}.scope"),
            format!("docker/{d}"),
            "lxc.payload.box".to_owned(),
            r"machine.slice/machine-my\x2dbox.scope".to_owned(),
            "system.slice/nginx.service".to_owned(),
            "system.slice/ssh@1.service".to_owned(),
            "user.slice/user-1.slice/user@1.service/app.slice/ssh@1.service".to_owned(),
        ];
        let check = |wanted: &str, expected: usize| {
            let found = cgroup_of(wanted, &cgroups, root.path());
            assert_eq!(found.unwrap(), cgroups[expected], "{wanted}");
        };
        check("web", 1);
        check("aaaa", 1);
        check(&a, 1);
        check("db", 2);
        check("bbbbbb", 2);
        check("cccc", 5);
        check("dddd", 6);
        check("box", 7);
        check("my-box", 8);
        check("nginx", 9);
        check("nginx.service", 9);
        let failed = |wanted: &str| {
            let failure = cgroup_of(wanted, &cgroups, root.path()).unwrap_err();
            format!("{failure}; {}", failure.hint_text().unwrap_or_default())
        };
        assert_eq!(
            failed("ngimx"),
            "--container ngimx: no running container or unit has this name or ID; use nginx"
        );
        assert!(
            failed("ssh@1")
                .contains("2 cgroups match; use one of: -G system.slice/ssh@1.service, -G user")
        );
        assert!(failed("").contains("no running container"));
        assert!(
            failed("aaa").contains("no running container"),
            "too short for an ID"
        );
    }
}
