// Hands on to loom-audit what opencode tells its plugins. Made by `loom-audit connect opencode`,
// deleted by `loom-audit connect --remove opencode`.
import { spawn } from "node:child_process"

const WORDS = ["WORDS"]

// What the hook client prints as an object; an empty one whatever goes wrong.
function run(told, directory) {
  return new Promise((resolve) => {
    const child = spawn(WORDS[0], WORDS.slice(1), {
      cwd: directory,
      stdio: ["pipe", "pipe", "ignore"],
    })
    const parts = []
    child.on("error", () => resolve({}))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (part) => parts.push(part))
    child.on("close", () => {
      try {
        resolve(JSON.parse(Buffer.concat(parts).toString() || "{}"))
      } catch {
        resolve({})
      }
    })
    child.stdin.end(JSON.stringify(told))
  })
}

function isTold(event) {
  if (["session.created", "session.idle", "session.error", "session.deleted"].includes(event.type))
    return true
  const part = event.type === "message.part.updated" ? event.properties.part : undefined
  if (!part) return false
  if (part.type === "tool") return part.state?.status === "error"
  return ["text", "reasoning"].includes(part.type) && Boolean(part.time?.end)
}

function sessionOf({ properties }) {
  return properties.sessionID ?? properties.part?.sessionID ?? properties.info?.id ?? ""
}

export const LoomAudit = async ({ directory }) => {
  let events = Promise.resolve() // in their order
  const tell = (name, session, told) =>
    run({ hook_event_name: name, session_id: session, cwd: directory, ...told }, directory)
  return {
    "tool.execute.before": async (input, output) => {
      const answer = await tell("tool.execute.before", input.sessionID, { input, output })
      if (answer.decision === "deny") throw new Error(answer.reason || "denied by loom-audit")
      if (answer.decision === "allow" && answer.arguments) output.args = answer.arguments
    },
    "tool.execute.after": async (input, output) => {
      await tell("tool.execute.after", input.sessionID, { input, output })
    },
    "permission.ask": async (input, output) => {
      const answer = await tell("permission.ask", input.sessionID, { input, output })
      if (answer.decision) output.status = answer.decision
    },
    "chat.message": async (input, output) => {
      await tell("chat.message", input.sessionID, { input, output })
    },
    event: async ({ event }) => {
      if (isTold(event)) events = events.then(() => tell("event", sessionOf(event), { event }))
    },
  }
}
