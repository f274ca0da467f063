// The document for the terminal, whose library makes style elements and style attributes.
//
// The policy of the page refuses both. Here a style element is a sheet of the object model, and a style attribute is set
// as a property. The build puts this in place of `document` in the file of the terminal.

/** An element that stands for a style element: its text is a sheet of the document. */
function styleElement(real: Document): HTMLElement {
  const element = real.createElement('span');
  element.hidden = true;
  const sheet = new CSSStyleSheet();
  real.adoptedStyleSheets = [...real.adoptedStyleSheets, sheet];
  let text = '';
  const content = {
    get: () => text,
    set: (value: string) => {
      text = value;
      sheet.replaceSync(value);
    },
  };
  Object.defineProperties(element, { textContent: content, innerText: content });
  const remove = element.remove.bind(element);
  element.remove = () => {
    real.adoptedStyleSheets = real.adoptedStyleSheets.filter((one) => one !== sheet);
    remove();
  };
  return element;
}

function withoutStyles(real: Document): Document {
  const createElement = (name: string) => {
    if (name === 'style') return styleElement(real);
    const element = real.createElement(name);
    const setAttribute = element.setAttribute.bind(element);
    element.setAttribute = (attribute: string, value: string) => {
      if (attribute === 'style') element.style.cssText = value;
      else setAttribute(attribute, value);
    };
    return element;
  };
  return new Proxy(real, {
    get(target, name) {
      if (name === 'createElement') return createElement;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  });
}

export const pageDocument = withoutStyles(globalThis.document);
