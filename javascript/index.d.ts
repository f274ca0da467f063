/** Settings of a start. */
export interface StartOptions {
  /** More flags of `keelson serve`. */
  args?: string[]
  /** The path of the server. */
  binary?: string
  /** Its environment. */
  env?: Record<string, string | undefined>
  /** The longest time for the start, in milliseconds. */
  timeout?: number
}

/** An answer of the server that is not a success. */
export class KeelsonError extends Error {
  readonly status: number
  readonly body: unknown
}

/** A running server. */
export class Server implements AsyncDisposable {
  /** The URL, such as `https://127.0.0.1:41234`. */
  readonly url: string
  /** The path of the administrator's kubeconfig. */
  readonly kubeconfig: string
  readonly pid: number
  readonly version: string
  /** What the server has logged so far, at most the last mebibyte. */
  log(): string
  /** Sends a request as the administrator. Resolves to the JSON of the answer; rejects with a `KeelsonError`. */
  request<T = any>(method: string, path: string, body?: unknown, contentType?: string): Promise<T>
  /** Makes a namespace with a name of its own, and resolves to the name. */
  namespace(prefix?: string): Promise<string>
  /**
   * Starts a fresh server with the objects of this one, in the same process and on its own port. Neither sees later
   * writes of the other. `stop()` ends the fork alone, and the end of this server ends its forks.
   */
  fork(options?: Pick<StartOptions, 'timeout'>): Promise<Server>
  /** Stops the server, and resolves when it has ended. */
  stop(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** Starts a server in memory, and resolves when it is ready. */
export function start(options?: StartOptions): Promise<Server>

/** The path of the server. */
export function findBinary(): string
