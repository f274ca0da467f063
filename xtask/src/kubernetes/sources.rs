//! A checkout of the public sources of Kubernetes: the whole repository, or its published parts side by side.
//!
//! The reader resolves names of types across packages, and does not depend on the generated files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, Result, bail};

use super::go::{Expr, Field, Form, Package, Type};

/// The prefix of the import paths of all Kubernetes packages.
const PREFIX: &str = "k8s.io/";
pub(crate) const META: &str = "k8s.io/apimachinery/pkg/apis/meta/v1";

pub(crate) struct Sources {
    /// The folder with `api`, `apimachinery` and the other parts.
    parts: PathBuf,
    packages: RefCell<HashMap<String, Rc<Package>>>,
}

/// A field of a structure, after the fields of embedded structures are moved to the outer one.
pub(crate) struct Placed {
    pub(crate) field: Field,
    /// The embedded structures that contain the field, from the outermost one, without `TypeMeta`.
    pub(crate) embedded_in: Vec<String>,
}

impl Sources {
    /// # Errors
    /// The folder holds neither the repository nor its parts.
    pub(crate) fn open(from: &Path) -> Result<Self> {
        let staging = from.join("staging/src/k8s.io");
        let parts = if staging.is_dir() { staging } else { from.to_owned() };
        for part in ["api", "apimachinery", "apiextensions-apiserver", "kube-aggregator"] {
            if !parts.join(part).is_dir() {
                bail!(
                    "{} has no folder {part}: give a checkout of kubernetes/kubernetes, or a folder with its published parts api, \
                     apimachinery, apiextensions-apiserver and kube-aggregator",
                    parts.display()
                );
            }
        }
        Ok(Self { parts, packages: RefCell::default() })
    }

    pub(crate) fn folder(&self, package: &str) -> PathBuf {
        self.parts.join(package.strip_prefix(PREFIX).unwrap_or(package))
    }

    /// The types of a package. It is empty if the release does not have the package.
    ///
    /// # Errors
    /// The package cannot be read.
    pub(crate) fn package(&self, path: &str) -> Result<Rc<Package>> {
        if let Some(known) = self.packages.borrow().get(path) {
            return Ok(known.clone());
        }
        let folder = self.folder(path);
        let read = Rc::new(if folder.is_dir() { Package::read(&folder, path)? } else { Package::default() });
        self.packages.borrow_mut().insert(path.to_owned(), read.clone());
        Ok(read)
    }

    /// The type with this name; an alias is resolved. `None` for Go's built-in types and for packages outside of
    /// Kubernetes.
    ///
    /// # Errors
    /// Its package cannot be read.
    pub(crate) fn find(&self, package: &str, name: &str) -> Result<Option<Type>> {
        let (package, name) = self.named(package, name)?;
        if !package.starts_with(PREFIX) {
            return Ok(None);
        }
        Ok(self.package(&package)?.types.get(&name).cloned())
    }

    /// Resolves the aliases of a type. Returns the package and the name.
    ///
    /// # Errors
    /// A package cannot be read.
    pub(crate) fn named(&self, package: &str, name: &str) -> Result<(String, String)> {
        if package.starts_with(PREFIX)
            && let Some(Type { form: Form::Alias(Expr::Named { package, name }), .. }) =
                self.package(package)?.types.get(name)
        {
            return self.named(package, name);
        }
        Ok((package.to_owned(), name.to_owned()))
    }

    /// The fields of a structure as declared. A named type with the form of a structure has fields too. `None` for
    /// other types.
    ///
    /// # Errors
    /// A package cannot be read.
    pub(crate) fn declared(&self, package: &str, name: &str) -> Result<Option<Vec<Field>>> {
        match self.find(package, name)?.map(|found| found.form) {
            Some(Form::Struct(fields)) => Ok(Some(fields)),
            Some(Form::Named(Expr::Named { package, name })) => self.declared(&package, &name),
            _ => Ok(None),
        }
    }

    /// Resolves a named type that is no structure to its underlying type.
    ///
    /// # Errors
    /// A package cannot be read.
    pub(crate) fn underlying(&self, expr: &Expr) -> Result<Expr> {
        if let Expr::Named { package, name } = expr {
            let (package, name) = self.named(package, name)?;
            let found = self.find(&package, &name)?;
            return match found {
                Some(Type { form: Form::Named(inner), .. }) if self.declared(&package, &name)?.is_none() => {
                    self.underlying(&inner)
                }
                _ => Ok(Expr::Named { package, name }),
            };
        }
        Ok(expr.clone())
    }

    /// Returns true for a structure. This includes structures with their own encoding, such as `Time`.
    ///
    /// # Errors
    /// A package cannot be read.
    pub(crate) fn is_struct(&self, expr: &Expr) -> Result<bool> {
        let Expr::Named { package, name } = self.underlying(expr)? else { return Ok(false) };
        Ok(self.declared(&package, &name)?.is_some())
    }

    /// The fields of a structure in the order of their JSON.
    ///
    /// # Errors
    /// A package cannot be read, or an embedded structure is not found.
    pub(crate) fn fields(&self, package: &str, name: &str) -> Result<Vec<Placed>> {
        let mut placed = Vec::new();
        self.place((package, name), &[], &mut placed)?;
        Ok(placed)
    }

    fn place(&self, (package, name): (&str, &str), around: &[String], placed: &mut Vec<Placed>) -> Result<()> {
        let fields = self.declared(package, name)?.with_context(|| format!("{package} has no structure {name}"))?;
        for field in fields {
            let is_inline = field.json().is_empty() && field.embedded;
            match (&field.expr, is_inline) {
                (Expr::Named { package, name }, true) => {
                    let mut around = around.to_vec();
                    around.extend((name != "TypeMeta").then(|| name.clone()));
                    self.place((package, name), &around, placed)?;
                }
                _ if field.json().is_empty() || field.json() == "-" => {}
                _ => placed.push(Placed { field, embedded_in: around.to_vec() }),
            }
        }
        Ok(())
    }
}

/// The prefix of a package's definitions in OpenAPI, without the version: `io.k8s.api.core`.
pub(crate) fn definitions(package: &str) -> String {
    let path = package.strip_prefix(PREFIX).unwrap_or(package);
    let group = path.rsplit_once('/').map_or(path, |(group, _)| group);
    format!("io.k8s.{}", group.replace('/', "."))
}

/// The folder of a package's group: `apps` for `k8s.io/api/apps/v1`.
pub(crate) fn group(package: &str) -> &str {
    package.split('/').rev().nth(1).unwrap_or_default()
}

/// The last element of a package's path, which is its name: `v1`.
pub(crate) fn short(package: &str) -> &str {
    package.rsplit('/').next().unwrap_or(package)
}
