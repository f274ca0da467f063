// The server as a child process, and requests to it with Node.js alone.

import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { Agent, request as send } from 'node:https'
import { connect } from 'node:net'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The longest time for a start, in milliseconds. */
const START_TIMEOUT = 30_000
/** The longest time for a stop before the server is killed, in milliseconds. */
const STOP_TIMEOUT = 15_000
/** The longest time for an answer, in milliseconds. */
const REQUEST_TIMEOUT = 30_000
/** The most of the log that is kept, in characters. */
const LOG_KEPT = 1024 * 1024
/** The part of the log that an error shows, in characters. */
const LOG_SHOWN = 4000

export class KeelsonError extends Error {
  constructor (status, body) {
    super(`${status}: ${typeof body === 'object' && body !== null ? body.message : body}`)
    this.name = 'KeelsonError'
    this.status = status
    this.body = body
  }
}

export function findBinary () {
  if (process.env.KEELSON_BIN) return process.env.KEELSON_BIN
  const places = [fileURLToPath(new URL('./bin', import.meta.url)), ...(process.env.PATH ?? '').split(delimiter)]
  const found = places.filter(Boolean).map((place) => join(place, 'keelson')).find((path) => existsSync(path))
  if (found === undefined) throw new Error('there is no keelson binary: set KEELSON_BIN, or put keelson on the path')
  return found
}

export class Server {
  #end
  #log
  #forkSocket
  #origin
  #agent

  constructor (line, { end, log, forkSocket }) {
    this.#end = end
    this.#log = log
    this.#forkSocket = forkSocket
    this.#origin = line.fork === undefined ? {} : { of: line.fork }
    this.url = line.url
    this.kubeconfig = line.kubeconfig
    this.pid = line.pid
    this.version = line.version
    this.#agent = agentOf(readFileSync(this.kubeconfig, 'utf8'))
  }

  log () {
    return this.#log.text
  }

  request (method, path, body, contentType = 'application/json') {
    const headers = { accept: 'application/json' }
    const data = body === undefined ? undefined : Buffer.from(JSON.stringify(body))
    if (data !== undefined) Object.assign(headers, { 'content-type': contentType, 'content-length': data.length })
    return new Promise((resolve, reject) => {
      const options = { method, headers, agent: this.#agent, timeout: REQUEST_TIMEOUT }
      const sent = send(new URL(path, this.url), options, (answer) => {
        const chunks = []
        answer.on('data', (chunk) => chunks.push(chunk))
        answer.on('error', reject)
        answer.on('end', () => {
          const text = Buffer.concat(chunks).toString()
          const isJson = (answer.headers['content-type'] ?? '').startsWith('application/json')
          const value = isJson ? JSON.parse(text) : text
          if (answer.statusCode < 300) resolve(value)
          else reject(new KeelsonError(answer.statusCode, value))
        })
      })
      sent.on('timeout', () => sent.destroy(new Error(`${method} ${path}: no answer in ${REQUEST_TIMEOUT} ms`)))
      sent.on('error', reject)
      sent.end(data)
    })
  }

  async namespace (prefix = 'test') {
    const name = `${prefix}-${randomBytes(4).toString('hex')}`
    await this.request('POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
    return name
  }

  async fork ({ timeout = START_TIMEOUT } = {}) {
    const forkSocket = this.#forkSocket
    if (forkSocket === undefined) throw new Error('this server has no forks; its log has the reason')
    const connection = connect(forkSocket)
    let line
    try {
      line = JSON.parse(await answerOf(connection, this.#origin, timeout))
      if (line.error !== undefined) throw new Error(line.error)
    } catch (error) {
      connection.destroy()
      throw new Error(`the fork did not start: ${error.message}`, { cause: error })
    }
    // A fork that is not stopped must not keep a test runner from ending: it ends with the connection.
    connection.unref()
    return new Server(line, { end: () => closed(connection), log: this.#log, forkSocket })
  }

  async stop () {
    this.#agent.destroy()
    await this.#end()
  }

  async [Symbol.asyncDispose] () {
    await this.stop()
  }
}

export async function start ({ args = [], binary = findBinary(), env = ownEnvironment(), timeout = START_TIMEOUT } = {}) {
  const flags = ['serve', '--ephemeral', '--bind', '127.0.0.1:0', '--output', 'json', `--exit-with-parent=${process.pid}`]
  const child = spawn(binary, [...flags, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  const log = { text: '' }
  child.stderr.on('data', (chunk) => { log.text = (log.text + chunk).slice(-LOG_KEPT) })
  let line
  try {
    const reasonOf = (code, signal) => `it ended with ${signal ?? code}`
    line = JSON.parse(await firstLine(child.stdout, child, reasonOf, timeout))
  } catch (error) {
    await ended(child)
    throw new Error(`the server did not start: ${error.message}; its log:\n${log.text.slice(-LOG_SHOWN)}`, { cause: error })
  }
  // A server that is not stopped must not keep a test runner from ending: it ends with this process.
  child.unref()
  child.stdout.unref()
  child.stderr.unref()
  return new Server(line, { end: () => ended(child), log, forkSocket: line.forkSocket })
}

/** The environment without settings of other servers. */
function ownEnvironment () {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('KEELSON_')))
}

/** The line with which a server answers a request for a fork. */
function answerOf (connection, request, timeout) {
  connection.write(`${JSON.stringify(request)}\n`)
  return firstLine(connection, connection, () => 'the server has ended', timeout)
}

/** Ends the fork of a connection, and resolves when it has ended: the server then closes the connection. */
function closed (connection) {
  if (connection.destroyed) return Promise.resolve()
  return new Promise((resolve) => {
    connection.ref()
    const timer = setTimeout(() => connection.destroy(), STOP_TIMEOUT)
    connection.once('close', () => {
      clearTimeout(timer)
      resolve()
    })
    connection.end()
  })
}

/** The first line of a stream. Fails with an error of its source, and with a reason when the source ends before. */
function firstLine (stream, source, reasonOf, timeout) {
  return new Promise((resolve, reject) => {
    let text = ''
    const timer = setTimeout(() => reject(new Error(`it is not ready after ${timeout} ms`)), timeout)
    const settle = (finish, value) => {
      clearTimeout(timer)
      finish(value)
    }
    source.on('error', (error) => settle(reject, error))
    source.on('close', (...how) => settle(reject, new Error(reasonOf(...how))))
    stream.on('data', (chunk) => {
      text += chunk
      const end = text.indexOf('\n')
      if (end >= 0) settle(resolve, text.slice(0, end))
    })
  })
}

/** Ends a child, and resolves when it has ended. */
function ended (child) {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return Promise.resolve()
  return new Promise((resolve) => {
    child.ref()
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT)
    child.once('exit', () => {
      clearTimeout(timer)
      resolve()
    })
    child.kill('SIGTERM')
  })
}

/** The settings of connections, by a kubeconfig with embedded certificates. */
function agentOf (kubeconfig) {
  const field = (name) => {
    const found = kubeconfig.match(new RegExp(`^\\s+${name}: (\\S+)$`, 'm'))
    if (found === null) throw new Error(`the kubeconfig has no ${name}`)
    return Buffer.from(found[1], 'base64')
  }
  return new Agent({
    ca: field('certificate-authority-data'),
    cert: field('client-certificate-data'),
    key: field('client-key-data'),
    keepAlive: true
  })
}
