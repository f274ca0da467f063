// The second protection against prototype pollution: the prototypes that all values inherit from are frozen.
//
// This module is loaded before all others. The first protection is that external names access only own properties
// (`lib/own.ts`).

/** Libraries give objects such members of their own by assignments, which a frozen prototype would refuse. */
const ASSIGNED = ['toString', 'valueOf'] as const;

for (const name of ASSIGNED) {
  const inherited: unknown = Reflect.get(Object.prototype, name);
  Object.defineProperty(Object.prototype, name, {
    get: () => inherited,
    set(this: object, value: unknown) {
      if (this === Object.prototype) throw new TypeError(`${name} of all objects can not be changed`);
      Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true });
    },
  });
}

for (const { prototype } of [Object, Array, Function]) Object.freeze(prototype);

export {};
