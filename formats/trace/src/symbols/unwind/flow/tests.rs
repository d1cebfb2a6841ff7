//! Rules of small functions, by hand.

use super::*;

fn at_rsp(offset: i32, rbp: Rbp) -> Rule {
    Rule::Frame(Frame::at(RSP, offset, rbp))
}

fn check(code: &[u8], expected: &[(u64, Rule)]) {
    let rules = rules_of(0x1000, code, &|address| address == 0x9000);
    assert_eq!(rules, expected);
}

#[test]
fn a_function_is_read_from_its_return() {
    let code = [
        0x55, // push rbp
        0x48, 0x89, 0xfd, // mov rbp, rdi
        0x48, 0x83, 0xec, 0x20, // sub rsp, 32
        0xff, 0xd0, // call rax
        0x48, 0x83, 0xc4, 0x20, // add rsp, 32
        0x5d, // pop rbp
        0xc3, // ret
    ];
    // The call is at an unaligned stack: whatever follows it belongs to something else, as far as is known.
    let saved = Rbp::AtCfa(-16);
    let rest = [
        (0x100a, at_rsp(48, saved)),
        (0x100e, at_rsp(16, saved)),
        (0x100f, at_rsp(8, Rbp::Same)),
    ];
    let aligned = [
        (0x1000, at_rsp(8, Rbp::Same)),
        (0x1001, at_rsp(16, saved)),
        (0x1008, at_rsp(48, saved)),
    ];
    let expected: Vec<_> = aligned.into_iter().chain(rest).collect();
    let merged: Vec<_> = expected
        .iter()
        .filter(|(address, _)| *address != 0x100a)
        .copied()
        .collect();
    check(&code, &merged);
}

#[test]
fn an_aligned_stack_is_left_by_the_saved_pointer() {
    let code = [
        0x48, 0x89, 0xe0, // mov rax, rsp
        0x48, 0x83, 0xe4, 0xe0, // and rsp, -32
        0x48, 0x83, 0xec, 0x40, // sub rsp, 64
        0x48, 0x89, 0x44, 0x24, 0x38, // mov [rsp+56], rax
        0x90, // nop
        0x48, 0x8b, 0x64, 0x24, 0x38, // mov rsp, [rsp+56]
        0xc3, // ret
    ];
    let indirect = |offset| {
        Rule::Frame(Frame {
            offset,
            indirect: Some(8),
            ..Frame::ENTRY
        })
    };
    let expected = [
        (0x1000, Rule::Gap),
        (0x1007, indirect(-8)),
        (0x100b, indirect(56)),
        (0x1016, at_rsp(8, Rbp::Same)),
    ];
    check(&code, &expected);
}

#[test]
fn threads_begin_where_rbp_is_cleared_and_nothing_returns() {
    let code = [
        0x31, 0xed, // xor ebp, ebp
        0x5f, // pop rdi
        0x41, 0xff, 0xd1, // call r9
        0x31, 0xc0, // xor eax, eax
        0xb0, 0x3c, // mov al, 60
        0x0f, 0x05, // syscall
        0xf4, // hlt
        0xc3, // ret
    ];
    let expected = [(0x1000, Rule::Root), (0x100d, at_rsp(8, Rbp::Same))];
    check(&code, &expected);
}

#[test]
fn contradictions_have_no_rule() {
    let code = [
        0x74, 0x05, // je +5
        0x48, 0x83, 0xc4, 0x08, // add rsp, 8
        0xc3, // ret
        0xc3, // ret
    ];
    let expected = [
        (0x1000, Rule::Gap),
        (0x1002, at_rsp(16, Rbp::Same)),
        (0x1006, at_rsp(8, Rbp::Same)),
    ];
    check(&code, &expected);
}

#[test]
fn jumps_to_other_functions_leave_this_one() {
    let mut code = vec![0x48, 0x83, 0xc4, 0x08, 0xe9];
    code.extend((0x9000i32 - 0x1009).to_le_bytes());
    check(
        &code,
        &[
            (0x1000, at_rsp(16, Rbp::Same)),
            (0x1004, at_rsp(8, Rbp::Same)),
        ],
    );
    // Where it leads is not known.
    let last = code.len() - 1;
    code[last] = 1;
    check(&code, &[(0x1000, Rule::Gap)]);
}

#[test]
fn signal_handlers_return_by_a_system_call() {
    let mut code = SIGNAL_RETURNS[0].to_vec();
    code.push(0xc3);
    let expected = [(0x1000, Rule::Signal), (0x1009, at_rsp(8, Rbp::Same))];
    check(&code, &expected);
}

proptest::proptest! {
    #[test]
    fn any_bytes_end(code: Vec<u8>) {
        let rules = rules_of(0x1000, &code, &|_| false);
        proptest::prop_assert!(rules.is_sorted_by_key(|(address, _)| *address));
    }
}
