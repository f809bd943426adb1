//! Rules about the shape of declarations: fields of a struct, tuples in signatures, documentation
//! of fields.

use super::finding::{Debt, Rule};
use super::rules::{FIELD_DOC_WORDS, STRUCT_FIELDS, STRUCTS_EXEMPT, TUPLE_ELEMENTS};
use super::source::is_test;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Checks the declarations of one file.
pub(super) fn check(file: &Path, tree: &syn::File) -> Vec<Debt> {
    let mut visitor = Visitor { file, in_tests: in_test_folder(file), in_signature: false, debts: Vec::new() };
    visitor.visit_file(tree);
    visitor.debts
}

/// Returns true for files that only tests compile: those in a `tests` folder and `tests.rs`.
pub(super) fn in_test_folder(file: &Path) -> bool {
    file.with_extension("").iter().any(|part| part == "tests" || part == "benches")
}

struct Visitor<'a> {
    file: &'a Path,
    in_tests: bool,
    in_signature: bool,
    debts: Vec<Debt>,
}

impl Visitor<'_> {
    fn add(&mut self, rule: Rule, line: usize, message: String) {
        self.debts.push(Debt::new(rule, self.file, line, message));
    }

    fn fields(&mut self, fields: &syn::Fields, is_help: bool) {
        let syn::Fields::Named(fields) = fields else { return };
        for field in fields.named.iter().filter(|_| !is_help) {
            let (Some(name), Some(doc)) = (&field.ident, doc_of(&field.attrs)) else { continue };
            if doc.split_whitespace().count() <= FIELD_DOC_WORDS {
                let message =
                    format!("doc of field {name} (\"{doc}\") adds nothing: give unit, range or clause, or none");
                self.add(Rule::FieldDoc, name.span().start().line, message);
            }
        }
    }

    fn in_tests(&mut self, attributes: &[syn::Attribute], visit: impl FnOnce(&mut Self)) {
        let outer = self.in_tests;
        self.in_tests |= is_test(attributes);
        visit(self);
        self.in_tests = outer;
    }
}

/// The documentation comment in `attributes`, if there is one.
fn doc_of(attributes: &[syn::Attribute]) -> Option<String> {
    let lines: Vec<String> = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"))
        .filter_map(|attribute| match &attribute.meta.require_name_value().ok()?.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

/// Returns true if a derive of clap turns the type's documentation into help texts.
fn derives_clap(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("derive")).any(|attribute| {
        attribute.meta.require_list().is_ok_and(|list| {
            let derives = list.tokens.to_string();
            derives.split([' ', ',', ':']).any(|word| matches!(word, "Args" | "Parser" | "Subcommand"))
        })
    })
}

fn is_exempt(file: &Path, item: &syn::ItemStruct) -> bool {
    let file = file.with_extension("");
    let in_part = |part: &str| file.iter().any(|folder| folder == part);
    derives_clap(&item.attrs)
        || STRUCTS_EXEMPT.iter().any(|(part, name, _)| in_part(part) && (name.is_empty() || item.ident == name))
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.in_tests(&item.attrs, |visitor| visit::visit_item_mod(visitor, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.in_tests(&item.attrs, |visitor| visit::visit_item_fn(visitor, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.in_tests(&item.attrs, |visitor| visit::visit_item_impl(visitor, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.in_tests(&item.attrs, |visitor| visit::visit_impl_item_fn(visitor, item));
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let count = item.fields.len();
        if count > STRUCT_FIELDS && !self.in_tests && !is_test(&item.attrs) && !is_exempt(self.file, item) {
            let name = &item.ident;
            let message = format!("struct {name} has {count} fields, {STRUCT_FIELDS} are the most: split it by owner");
            self.add(Rule::StructFields, name.span().start().line, message);
        }
        self.fields(&item.fields, derives_clap(&item.attrs));
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let is_help = derives_clap(&item.attrs);
        item.variants.iter().for_each(|variant| self.fields(&variant.fields, is_help));
        visit::visit_item_enum(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let outer = std::mem::replace(&mut self.in_signature, true);
        visit::visit_signature(self, signature);
        self.in_signature = outer;
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let outer = std::mem::replace(&mut self.in_signature, false);
        visit::visit_block(self, block);
        self.in_signature = outer;
    }

    fn visit_type_tuple(&mut self, tuple: &'ast syn::TypeTuple) {
        let count = tuple.elems.len();
        if count > TUPLE_ELEMENTS && self.in_signature && !self.in_tests {
            let message =
                format!("tuple of {count} elements in a signature, {TUPLE_ELEMENTS} are the most: name a struct");
            self.add(Rule::Tuple, tuple.span().start().line, message);
        }
        visit::visit_type_tuple(self, tuple);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rule: Rule, file: &str, text: &str) -> Vec<usize> {
        let tree = syn::parse_file(text).unwrap();
        let debts = check(Path::new(file), &tree).into_iter();
        debts.filter(|debt| debt.rule == rule).map(|debt| debt.finding.line).collect()
    }

    fn tuples(text: &str) -> usize {
        lines(Rule::Tuple, "crates/node/src/a.rs", text).len()
    }

    #[test]
    fn struct_over_limit_is_found() {
        let of = |count: usize| {
            let fields: Vec<String> = (0..count).map(|n| format!("f{n}: u8")).collect();
            format!("#[derive(Debug)]\nstruct A {{ {} }}", fields.join(", "))
        };
        let large = of(STRUCT_FIELDS + 1);
        let found = |file: &str, text: &str| lines(Rule::StructFields, file, text);
        assert_eq!(found("crates/node/src/a.rs", &of(STRUCT_FIELDS)), [0; 0]);
        assert_eq!(found("crates/node/src/a.rs", &large), [2]);
        assert_eq!(found("crates/node/src/tests/a.rs", &large), [0; 0]);
        assert_eq!(found("crates/core/src/config/a.rs", &large), [0; 0], "configuration");
        let args = large.replace("Debug", "Debug, clap::Args");
        assert_eq!(found("crates/vireo/src/a.rs", &args), [0; 0], "command line");
        let report = large.replace("struct A", "struct Report");
        assert_eq!(found("crates/lab/src/demo/report.rs", &report), [0; 0], "named by the table");
        assert_eq!(found("crates/lab/src/demo/report.rs", &large), [2], "not named by the table");
    }

    #[test]
    fn signature_tuple_over_limit_is_found() {
        assert_eq!(tuples("fn a(b: (u8, u8), c: Vec<(u8, u8)>) -> (u8, u8) { b }"), 0);
        assert_eq!(tuples("fn a(b: (u8, u8, u8)) {}"), 1);
        assert_eq!(tuples("impl A { fn a(&self) -> Option<Vec<(u8, u8, u8)>> { None } }"), 1);
        assert_eq!(tuples("trait A { fn a(b: impl Fn((u8, u8, u8)) -> (u8, u8, u8)); }"), 2);
        assert_eq!(tuples("fn a<F>(f: F) where F: FnMut(&(u8, u8, u8)) {}"), 1);
    }

    #[test]
    fn tuple_outside_signature_is_allowed() {
        assert_eq!(tuples("fn a() { let b: (u8, u8, u8) = (1, 2, 3); }"), 0);
        assert_eq!(tuples("struct A { b: (u8, u8, u8) }"), 0);
        assert_eq!(tuples("fn a(f: impl Fn(u8, u8, u8)) {}"), 0);
        assert_eq!(tuples("#[cfg(test)]\nmod tests { fn a(b: (u8, u8, u8)) {} }"), 0);
        assert_eq!(tuples("fn a() { fn b(c: (u8, u8, u8)) {} }"), 1, "a function in a function");
    }

    #[test]
    fn short_field_doc_is_found() {
        let found = |text: &str| lines(Rule::FieldDoc, "crates/node/src/a.rs", text);
        assert_eq!(found("struct A {\n/// It.\na: u8,\n/// From 1 to 15.\nb: u8, c: u8 }"), [3]);
        assert_eq!(found("enum A { B {\n/// The UE's number.\na: u8 },\n/// It.\nC }"), [3]);
        assert_eq!(found("struct A {\n/// The UE's\n/// LTMSI, 28 bits.\na: u8 }"), [0; 0]);
        assert_eq!(found("#[derive(Parser)]\nstruct A {\n/// Seed\na: u8 }"), [0; 0], "help text");
        assert_eq!(found("/// It.\nstruct A(u8);"), [0; 0]);
    }
}
